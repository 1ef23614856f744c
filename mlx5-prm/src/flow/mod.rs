//! Flow tables: what packets are matched by, where they go, and how they are changed. PRM "Flow Tables".

use crate::layout::files::files;

files! {
    action: layouts values;
    entry: layouts values;
    match_param: layouts values;
    reformat: layouts values;
    table: layouts values;
}
