//! Queue pairs that the RDMA connection manager connects (`-R`): one connection each, whose request says which of the
//! client's it is. The rest goes over TCP, as without.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_cm::{
    CmTransport, ConnectionId, ConnectionManager, Event, ManagerError, Parameters, Route, Service, address_of,
};
use mlx5_dv::Device;
use mlx5_neighbours::Network;

use super::arguments::{Connection, Plan};
use super::test_qp::{Address, TestQp};
use crate::output::Failure;

/// How long both ends may take to connect all queue pairs.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long one looks away from the other end's messages.
const GLANCE: Duration = Duration::from_millis(20);
/// Connections that are requested at once: a listener's backlog is limited.
const AT_ONCE: usize = 256;

/// The connections of one end.
#[derive(Debug)]
pub struct Managed {
    manager: ConnectionManager,
    ids: Vec<ConnectionId>,
}

impl Managed {
    /// The client's, without connections yet.
    pub fn new(device: &Arc<Device>, network: Option<Network>) -> Result<Self, Failure> {
        Ok(Managed { manager: ConnectionManager::start(device, network)?, ids: Vec::new() })
    }

    /// The server's, which listens on `port`.
    pub fn listen(device: &Arc<Device>, network: Option<Network>, port: u16) -> Result<Self, Failure> {
        let mut managed = Self::new(device, network)?;
        managed.manager.listen(Service::tcp(port))?;
        Ok(managed)
    }

    /// Connects all queue pairs to the server's, `ends`, on its port `port`.
    pub fn call(&mut self, plan: &Plan, qps: &mut [TestQp], ends: &[Address], port: u16) -> Result<(), Failure> {
        let same = ends.len() == qps.len();
        let host = ends.first().filter(|_| same).ok_or("the other end has another number of queue pairs")?.gid();
        let remote = SocketAddr::new(address_of(host), port);
        let begin = Instant::now();
        let mut waiting = Vec::new();
        let mut next = 0;
        while self.ids.len() < qps.len() {
            while next < qps.len() && waiting.len() < AT_ONCE {
                let parameters = parameters(plan, &qps[next]).private_data(&(next as u32).to_be_bytes());
                waiting.push((self.manager.connect(remote, route(plan), &parameters)?, next));
                next += 1;
            }
            let Some((id, event)) = self.event(begin)? else { continue };
            let Event::ConnectResponse { .. } = event else {
                return Err(format!("the connection manager of {remote} made no connection: {event:?}").into());
            };
            let at = waiting.iter().position(|(of, _)| *of == id).ok_or("a response to no request")?;
            let (_, index) = waiting.swap_remove(at);
            let (rtr, rts) = self.manager.attributes(id)?;
            qps[index].connect_by(&rtr, &rts, &ends[index])?;
            self.manager.ready(id, &[])?;
            self.ids.push(id);
        }
        Ok(())
    }

    /// Is called by the client for all queue pairs. `is_there` fails if the client has failed.
    pub fn be_called(
        &mut self,
        plan: &Plan,
        qps: &mut [TestQp],
        ends: &[Address],
        is_there: impl Fn() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut established = 0;
        while established < qps.len() {
            is_there()?;
            match self.event(begin)? {
                None => {}
                Some((_, Event::Established { .. })) => established += 1,
                Some((id, Event::ConnectRequest { private_data, .. })) => {
                    let index =
                        private_data.first_chunk().map_or(u32::MAX, |index| u32::from_be_bytes(*index)) as usize;
                    let (Some(qp), Some(end)) = (qps.get_mut(index), ends.get(index)) else {
                        self.manager.reject(id, b"no such queue pair")?;
                        continue;
                    };
                    let (rtr, rts) = self.manager.attributes(id)?;
                    qp.connect_by(&rtr, &rts, end)?;
                    let answer = Parameters { psn: rtr.rq_psn, ..parameters(plan, qp) };
                    self.manager.accept(id, &answer)?;
                    self.ids.push(id);
                }
                Some((_, other)) => return Err(format!("a connection failed: {other:?}").into()),
            }
        }
        Ok(())
    }

    /// The next event; `None` if there is none for a little while.
    fn event(&mut self, begin: Instant) -> Result<Option<(ConnectionId, Event)>, Failure> {
        if begin.elapsed() > PATIENCE {
            return Err(format!("the connection managers took more than {} s", PATIENCE.as_secs()).into());
        }
        match self.manager.wait(GLANCE) {
            Ok(event) => Ok(Some(event)),
            Err(ManagerError::Timeout(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers messages that the other end has missed and repeats, until `is_over`.
    pub fn answer_until(&mut self, is_over: impl Fn() -> Result<bool, Failure>) -> Result<(), Failure> {
        let begin = Instant::now();
        while !is_over()? {
            if let Some((_, event)) = self.event(begin)? {
                return Err(format!("a connection failed: {event:?}").into());
            }
        }
        Ok(())
    }

    /// Tells the other end that it is over. Who is told first ends first: nobody waits.
    pub fn end(mut self) {
        for id in std::mem::take(&mut self.ids) {
            let _ = self.manager.disconnect(id, &[]);
        }
        let _ = self.manager.poll();
    }
}

fn parameters(plan: &Plan, qp: &TestQp) -> Parameters {
    let mut parameters = Parameters::new(qp.qpn(), 0);
    (parameters.initiator_depth, parameters.responder_resources) = (plan.outs, plan.outs);
    parameters
}

fn route(plan: &Plan) -> Route {
    Route {
        transport: if plan.agreed.connection == Connection::Uc { CmTransport::Uc } else { CmTransport::Rc },
        path_mtu: plan.path_mtu,
        local_ack_timeout: plan.qp_timeout,
        service_level: plan.service_level,
        ..Route::default()
    }
}
