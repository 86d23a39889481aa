//! Fresh runs of the tool and of the peer's tuner, alternating, so that the machine's disturbances affect both.

use crate::load::Load;
use crate::options::{Options, Part};
use crate::peer::Peers;
use crate::programs::Programs;
use crate::wall::Walls;

/// The results under a number of busy processes.
pub(crate) struct Turns {
    pub(crate) load: usize,
    /// None if no wall time was requested.
    pub(crate) walls: Option<Walls>,
    /// None without a peer, or if no run of it was requested.
    pub(crate) peers: Option<Peers>,
}

pub(crate) fn run(options: &Options, programs: &Programs, load: usize) -> Turns {
    let _busy = Load::start(load);
    let runs = |part: Part, runs: usize| if options.has(part) { runs } else { 0 };
    let (wall_runs, peer_runs) = (runs(Part::Wall, options.wall), runs(Part::Peer, options.peer_repeats));
    let peer = options.peer.as_deref().filter(|_| peer_runs > 0);
    let mut turns = Turns { load, walls: (wall_runs > 0).then(Walls::default), peers: peer.map(|_| Peers::default()) };
    for turn in 0..wall_runs.max(peer_runs) {
        if let Some(walls) = turns.walls.as_mut().filter(|_| turn < wall_runs) {
            let seconds = walls.take(options, programs);
            eprintln!("wall time {} of {wall_runs}, load {load}: {seconds:.1} s", turn + 1);
        }
        if let (Some(peers), Some(python)) = (turns.peers.as_mut().filter(|_| turn < peer_runs), peer) {
            eprintln!("peer {} of {peer_runs}, load {load}", turn + 1);
            // its own runtime needs one reference, without disturbances
            let rounds = if load == 0 && turn + 1 == peer_runs { options.rounds } else { 0 };
            peers.take(options, python, rounds);
        }
    }
    turns
}
