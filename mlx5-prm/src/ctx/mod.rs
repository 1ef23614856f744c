//! Contexts: what the card keeps of each object.

use crate::registry::files;

files! {
    adapter: layouts;
    cqc: layouts values;
    eqc: layouts values;
    mkc: layouts values;
    qpc: layouts values;
    umem: layouts;
    vport: layouts values;
}
