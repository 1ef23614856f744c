//! Queue pairs that the RDMA connection manager connects (`-R`): one connection each, whose request says which of the
//! client's it is. The rest goes over TCP, as without.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mlx5_cm::{
    CmRejectReason, CmTransport, ConnectionId, ConnectionManager, Event, ManagerError, Parameters, Route, Service,
};
use mlx5_dv::Device;
use mlx5_dv::queue::Endpoint;
use mlx5_neighbours::Network;

use super::arguments::{Connection, Plan};
use super::test_qp::TestQp;
use crate::output::{self, Failure};

/// How long both ends may take to connect all queue pairs.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long one looks away from the other end's messages.
const GLANCE: Duration = Duration::from_millis(20);
/// Connections that are requested at once: a listener's backlog is limited.
const AT_ONCE: usize = 256;
/// How long nobody may listen yet: perftest's server says that it is ready, then listens.
const NOBODY: Duration = Duration::from_secs(5);
/// Between two requests to one who does not listen yet.
const RETRY: Duration = Duration::from_millis(100);
/// How long the other end may take to end the connections, or to confirm their end.
const FAREWELL: Duration = Duration::from_secs(10);

/// The connections of one end.
#[derive(Debug)]
pub struct Managed {
    manager: ConnectionManager,
    ids: Vec<ConnectionId>,
    /// Events that came while somebody looked for other things.
    early: VecDeque<(ConnectionId, Event)>,
}

impl Managed {
    /// The client's, without connections yet.
    pub fn new(device: &Arc<Device>, network: Option<Network>) -> Result<Self, Failure> {
        let manager = ConnectionManager::start(device, network)?;
        Ok(Managed { manager, ids: Vec::new(), early: VecDeque::new() })
    }

    /// The server's, which listens on `port`.
    pub fn listen(device: &Arc<Device>, network: Option<Network>, port: u16) -> Result<Self, Failure> {
        let mut managed = Self::new(device, network)?;
        managed.manager.listen(Service::tcp(port))?;
        Ok(managed)
    }

    /// Connects all queue pairs to the server's, who listens at `remote`.
    pub fn call(&mut self, plan: &Plan, qps: &mut [TestQp], remote: SocketAddr) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut waiting = Vec::new();
        let mut next = 0;
        while self.ids.len() < qps.len() {
            while next < qps.len() && waiting.len() < AT_ONCE {
                waiting.push((self.request(plan, qps[next].qpn(), next, remote)?, next));
                next += 1;
            }
            let Some((id, event)) = self.event(begin)? else { continue };
            let at = waiting.iter().position(|(of, _)| *of == id).ok_or("a response to no request")?;
            let (_, index) = waiting.swap_remove(at);
            match event {
                Event::ConnectResponse { .. } => {}
                Event::Rejected { reason: CmRejectReason::InvalidServiceId, .. } if begin.elapsed() < NOBODY => {
                    std::thread::sleep(RETRY);
                    waiting.push((self.request(plan, qps[index].qpn(), index, remote)?, index));
                    continue;
                }
                event => return Err(format!("the connection manager of {remote} made no connection: {event}").into()),
            }
            let (rtr, rts) = self.manager.attributes(id)?;
            qps[index].connect_by(&rtr, &rts)?;
            self.manager.ready(id, &[])?;
            self.ids.push(id);
        }
        Ok(())
    }

    /// Requests a connection for queue pair `qpn`, the one with number `index`.
    fn request(&mut self, plan: &Plan, qpn: u32, index: usize, remote: SocketAddr) -> Result<ConnectionId, Failure> {
        let parameters = parameters(plan, qpn);
        // perftest says nothing, and is told nothing.
        let parameters = match plan.perftest {
            true => parameters,
            false => parameters.private_data(&(index as u32).to_be_bytes()),
        };
        Ok(self.manager.connect(remote, route(plan), &parameters)?)
    }

    /// Is called by the client for all queue pairs. `is_there` fails if the client has failed.
    pub fn be_called(
        &mut self,
        plan: &Plan,
        qps: &mut [TestQp],
        is_there: impl Fn() -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut established = 0;
        while established < qps.len() {
            is_there()?;
            match self.event(begin)? {
                None => {}
                Some((id, Event::Established { .. })) => established += usize::from(self.ids.contains(&id)),
                Some((id, Event::ConnectRequest { private_data, .. })) => {
                    let index = match plan.perftest {
                        true => self.ids.len(),
                        false => {
                            private_data.first_chunk().map_or(u32::MAX, |index| u32::from_be_bytes(*index)) as usize
                        }
                    };
                    let Some(qp) = qps.get_mut(index) else {
                        self.manager.reject(id, b"no such queue pair")?;
                        continue;
                    };
                    let (rtr, rts) = self.manager.attributes(id)?;
                    qp.connect_by(&rtr, &rts)?;
                    let answer = Parameters { psn: rtr.rq_psn, ..parameters(plan, qp.qpn()) };
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
        if let Some(event) = self.early.pop_front() {
            return Ok(Some(event));
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

    /// Connects one queue pair that is none of those under test to whoever listens at `remote`, or will soon.
    pub fn call_aside(&mut self, plan: &Plan, qp: &mut Endpoint, remote: SocketAddr) -> Result<ConnectionId, Failure> {
        let (begin, mut said) = (Instant::now(), false);
        loop {
            let id = self.request(plan, qp.queue_pair().qpn(), 0, remote)?;
            let event = loop {
                if let Some((of, event)) = self.event(begin)?
                    && of == id
                {
                    break event;
                }
            };
            match event {
                Event::ConnectResponse { .. } => {
                    let (rtr, rts) = self.manager.attributes(id)?;
                    qp.connect_by(&rtr, &rts)?;
                    self.manager.ready(id, &[])?;
                    return Ok(id);
                }
                Event::Rejected { reason: CmRejectReason::InvalidServiceId, .. } => {
                    if !said {
                        let limit = PATIENCE.as_secs();
                        output::note(&format!("waiting for the server on {remote}, up to {limit} s"));
                    }
                    said = true;
                    std::thread::sleep(RETRY);
                }
                event => return Err(format!("the connection manager of {remote} made no connection: {event}").into()),
            }
        }
    }

    /// Takes the next request for one queue pair that is none of those under test.
    pub fn be_called_aside(&mut self, plan: &Plan, qp: &mut Endpoint) -> Result<ConnectionId, Failure> {
        let begin = Instant::now();
        loop {
            let Some((id, Event::ConnectRequest { .. })) = self.event(begin)? else { continue };
            let (rtr, rts) = self.manager.attributes(id)?;
            qp.connect_by(&rtr, &rts)?;
            let answer = Parameters { psn: rtr.rq_psn, ..parameters(plan, qp.queue_pair().qpn()) };
            self.manager.accept(id, &answer)?;
            return Ok(id);
        }
    }

    /// Answers messages. Returns whether connection `id` has ended; other events wait.
    pub fn has_ended(&mut self, id: ConnectionId) -> Result<bool, Failure> {
        while let Some((of, event)) = self.manager.poll()? {
            match event {
                Event::Disconnected { .. } | Event::Unreachable if of == id => return Ok(true),
                event if of != id => self.early.push_back((of, event)),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Ends connection `id`, and does not wait.
    pub fn leave(&mut self, id: ConnectionId) {
        let _ = self.manager.disconnect(id, &[]);
        let _ = self.manager.poll();
    }

    /// Waits for the end of all connections of queue pairs under test, as perftest does: its server ends them, its
    /// client waits.
    pub fn end_as(&mut self, server: bool) -> Result<(), Failure> {
        let mut open = std::mem::take(&mut self.ids);
        if server {
            open.iter().try_for_each(|id| self.manager.disconnect(*id, &[]))?;
        }
        let begin = Instant::now();
        while !open.is_empty() {
            if begin.elapsed() > FAREWELL {
                return Err(format!("{} connections did not end within {} s", open.len(), FAREWELL.as_secs()).into());
            }
            if let Some((id, Event::Disconnected { .. })) = self.event(begin)? {
                open.retain(|of| *of != id);
            }
        }
        Ok(())
    }
}

fn parameters(plan: &Plan, qpn: u32) -> Parameters {
    let mut parameters = Parameters::new(qpn, 0);
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
