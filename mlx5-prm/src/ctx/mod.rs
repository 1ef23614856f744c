//! Contexts: what the card keeps of each object.

use crate::registry::files;

files! {
    adapter: layouts;
    congestion: layouts;
    cqc: layouts values;
    dct: layouts values;
    eqc: layouts values;
    hca_vport: layouts;
    mkc: layouts values;
    qpc: layouts values;
    rqt: layouts values;
    scheduling: layouts values;
    srq: layouts values;
    tir: layouts values;
    tis: layouts;
    umem: layouts;
    vport: layouts values;
    wq: layouts values;
}
