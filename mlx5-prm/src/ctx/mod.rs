//! Contexts: what the card keeps of each object.

use crate::registry::files;

files! {
    adapter: layouts;
    congestion: layouts;
    cqc: layouts values;
    eqc: layouts values;
    hca_vport: layouts;
    mkc: layouts values;
    qpc: layouts values;
    scheduling: layouts;
    umem: layouts;
    vport: layouts values;
}
