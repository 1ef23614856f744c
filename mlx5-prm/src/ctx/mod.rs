//! Contexts of objects. The PRM describes each in its chapter "Command Reference", with the commands that carry it.

use crate::layout::files::files;

files! {
    adapter: layouts;
    congestion: layouts;
    cqc: layouts values;
    dct: layouts values;
    eqc: layouts values;
    fpga: layouts values;
    hca_vport: layouts;
    lag: layouts values;
    mkc: layouts values;
    page_fault: layouts;
    qpc: layouts values;
    rqt: layouts values;
    scheduling: layouts values;
    srq: layouts values;
    tir: layouts values;
    tis: layouts;
    translation: layouts;
    umem: layouts;
    vhca: layouts values;
    vport: layouts values;
    wq: layouts values;
    xrq: layouts values;
}
