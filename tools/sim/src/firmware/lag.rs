//! Link aggregation. The card has one port, so there is never a bond. PRM "LAG Context".

use mlx5_prm::cmd::{QueryLagIn, QueryLagOut};

use super::answer::Answer;
use crate::function::Function;

/// `QUERY_LAG`: `lag_state` 0.
pub(super) fn query(_: &mut Function, _: &QueryLagIn) -> Answer<QueryLagOut> {
    Ok(QueryLagOut::ZERO)
}
