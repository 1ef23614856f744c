//! Flow tables: match parameters, destinations, header changes. PRM "Flow Tables".

use crate::layout::files::files;

files! {
    action: layouts values;
    entry: layouts values;
    match_param: layouts values;
    reformat: layouts values;
    table: layouts values;
}
