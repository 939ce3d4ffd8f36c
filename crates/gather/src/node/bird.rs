//! BGP sessions, as BIRD tells them.

use std::path::{Path, PathBuf};

use model::NodeName;

use evidence::answers::BgpReader;
use evidence::node::Bgp;
use evidence::{NodeGap, Origin, Unseen};
use model::text::LineCutter;

/// The same question that operators ask with `birdc`, and the same reader for its answer.
const QUESTION: &str = "show protocols";
/// The long form, which tells the neighbour of a session whose name does not.
const LONG_QUESTION: &str = "show protocols all";

/// At the socket where one must listen, else at the usual ones. `None` if there is no BIRD and none is expected; and what went
/// wrong, in words.
pub(super) fn sessions(node: &NodeName, expected: Option<PathBuf>) -> (Option<Bgp>, Vec<Unseen>) {
    match expected {
        // A BIRD that was stopped took its socket along.
        Some(socket) if !socket.exists() => {
            (Some(Bgp { is_running: Some(false), ..Bgp::default() }), Vec::new())
        }
        Some(socket) => sessions_at(node, &[socket]),
        None => sessions_at(node, &host::bird::sockets()),
    }
}

/// The same at sockets that are known.
pub fn sessions_at(node: &NodeName, sockets: &[PathBuf]) -> (Option<Bgp>, Vec<Unseen>) {
    let (mut found, mut problems) = (None, Vec::new());
    for socket in sockets {
        match ask(node, socket) {
            Ok(read) => {
                let bgp: &mut Bgp = found.get_or_insert_default();
                (bgp.is_running, bgp.is_silent) = (Some(true), false);
                if let Some(read) = read {
                    bgp.sessions.extend(read.sessions);
                    bgp.protocols.extend(read.protocols);
                }
            }
            // It left its socket and nobody is behind it: killed, or crashed. A BIRD that was stopped takes its socket along.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
                found.get_or_insert_with(|| Bgp { is_running: Some(false), ..Bgp::default() });
            }
            Err(error) => {
                // A process is behind it, but it is stopped or hangs: it keeps no session.
                if error.kind() == std::io::ErrorKind::TimedOut {
                    let silent = Bgp { is_running: Some(false), is_silent: true, ..Bgp::default() };
                    found.get_or_insert(silent);
                }
                let (socket, why) = (socket.display().to_string(), error.to_string());
                problems.push(Unseen::node(node, NodeGap::Bird { socket, why }));
            }
        }
    }
    (found, problems)
}

/// Calico and our agent name sessions for their neighbours; only where somebody else wrote the configuration more is asked.
fn ask(node: &NodeName, socket: &Path) -> std::io::Result<Option<Bgp>> {
    let short = read(node, &host::bird::ask(socket, QUESTION)?);
    let is_named_otherwise = |bgp: &Bgp| bgp.protocols.iter().any(|protocol| protocol.seen.kind == "BGP");
    if !short.as_ref().is_some_and(is_named_otherwise) {
        return Ok(short);
    }
    Ok(read(node, &host::bird::ask(socket, LONG_QUESTION)?).or(short))
}

fn read(node: &NodeName, answer: &str) -> Option<Bgp> {
    let name = format!("birdc {QUESTION} on {node}");
    let (mut cutter, mut reader) = (LineCutter::default(), BgpReader::default());
    let mut line = |line: model::text::Line| {
        let origin = || Origin::line(name.as_str(), line.number, &line.text);
        reader.line(&line.text, origin);
    };
    cutter.feed(answer.as_bytes(), &mut line);
    cutter.finish(&mut line);
    reader.bgp
}

#[cfg(test)]
mod tests {
    use std::os::fd::OwnedFd;

    use rustix::io::Errno;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    use rustix::process::{Pid, Signal};

    use super::*;

    #[test]
    fn a_socket_that_nobody_serves_is_a_bird_that_died() {
        let folder = tempfile::tempdir().unwrap();
        let (left, never) = (folder.path().join("bird.ctl"), folder.path().join("never.ctl"));
        drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
        let (bgp, problems) = sessions_at(&"node-a".into(), &[left]);
        assert_eq!((bgp.unwrap().is_running, problems.len()), (Some(false), 0));
        let (bgp, problems) = sessions_at(&"node-a".into(), std::slice::from_ref(&never));
        assert_eq!((bgp, problems.len()), (None, 1));
        // Where one must be, that is a BIRD that does not run.
        let (bgp, problems) = sessions(&"node-a".into(), Some(never));
        assert_eq!((bgp.unwrap().is_running, problems.len()), (Some(false), 0));
        assert_eq!(sessions_at(&"node-a".into(), &[]), (None, Vec::new()));
    }

    /// A real one. Its queue of callers is full as well, as that of a BIRD that many programs ask.
    #[test]
    fn a_bird_that_is_stopped_is_not_healthy_and_holds_up_no_caller() {
        if !testkit::process::on_path("bird") {
            testkit::skip("a_bird_that_is_stopped_is_not_healthy_and_holds_up_no_caller", "no bird");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let bird = RealBird::start(folder.path());
        let ask = {
            let socket = bird.socket.clone();
            move || sessions_at(&"node-a".into(), std::slice::from_ref(&socket))
        };
        bird.signal(Signal::STOP);
        let queue = fill_queue(&bird.socket);
        let (answer, answered) = std::sync::mpsc::channel();
        let asking = ask.clone();
        std::thread::spawn(move || answer.send(asking()));
        let (bgp, problems) = answered.recv_timeout(testkit::PATIENCE).expect("an answer");
        let bgp = bgp.unwrap();
        assert_eq!((bgp.is_running, bgp.is_silent, problems.len()), (Some(false), true, 1), "{problems:?}");
        // Where one was expected, too.
        let (bgp, _) = sessions(&"node-a".into(), Some(bird.socket.clone()));
        assert!(bgp.unwrap().is_silent);
        drop(queue);
        bird.signal(Signal::CONT);
        let started = std::time::Instant::now();
        let is_back = || ask().0.is_some_and(|bgp| bgp.is_running == Some(true) && !bgp.is_silent);
        while !is_back() {
            assert!(started.elapsed() < testkit::PATIENCE, "BIRD does not answer again");
        }
    }

    /// One with a socket of its own and nothing to do. Killed when dropped.
    struct RealBird {
        process: std::process::Child,
        socket: PathBuf,
    }

    impl RealBird {
        fn start(folder: &Path) -> RealBird {
            let (config, socket) = (folder.join("bird.conf"), folder.join("bird.ctl"));
            std::fs::write(&config, "router id 192.0.2.1;\nprotocol device {}\n").unwrap();
            let mut command = std::process::Command::new("bird");
            command.arg("-f").arg("-c").arg(&config).arg("-s").arg(&socket);
            let bird = RealBird { process: command.spawn().unwrap(), socket };
            let started = std::time::Instant::now();
            while host::bird::ask(&bird.socket, "show status").is_err() {
                assert!(started.elapsed() < testkit::PATIENCE, "BIRD does not start");
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            bird
        }

        fn signal(&self, signal: Signal) {
            rustix::process::kill_process(Pid::from_child(&self.process), signal).unwrap();
        }
    }

    impl Drop for RealBird {
        fn drop(&mut self) {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    /// Callers until the next would have to wait.
    fn fill_queue(socket: &Path) -> Vec<OwnedFd> {
        let address = SocketAddrUnix::new(socket).unwrap();
        let mut callers = Vec::new();
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let caller = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
            match connect(&caller, &address) {
                Ok(()) => callers.push(caller),
                Err(error) => {
                    assert_eq!(error, Errno::AGAIN);
                    return callers;
                }
            }
        }
    }

    /// Answers every question as a BIRD with a configuration of somebody's own does.
    fn serve(
        listener: std::os::unix::net::UnixListener,
        asked: usize,
    ) -> std::thread::JoinHandle<Vec<String>> {
        use std::io::{BufRead as _, BufReader, Write as _};
        const SHORT: &str = "2002-Name       Proto      Table      State  Since         Info\n\
                             1002-uplink     BGP        ---        start  10:00:01.000  Active        Socket: Connection refused\n";
        const DETAILS: &str = "1006-  BGP state:          Active\n     Neighbor address: 192.0.2.9\n     Neighbor AS:      65001\n";
        std::thread::spawn(move || {
            let mut questions = Vec::new();
            for _ in 0..asked {
                let mut stream = listener.accept().unwrap().0;
                stream.write_all(b"0001 BIRD 2.0.12 ready.\n").unwrap();
                let mut question = String::new();
                BufReader::new(stream.try_clone().unwrap()).read_line(&mut question).unwrap();
                let details = if question.contains("all") { DETAILS } else { "" };
                stream.write_all(format!("{SHORT}{details}0000 \n").as_bytes()).unwrap();
                questions.push(question.trim().to_owned());
            }
            questions
        })
    }

    #[test]
    fn a_session_with_a_name_of_its_own_is_asked_for_its_neighbour() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("own.ctl");
        let bird = serve(std::os::unix::net::UnixListener::bind(&socket).unwrap(), 2);
        let (bgp, problems) = sessions(&"node-a".into(), Some(socket));
        assert_eq!(bird.join().unwrap(), [QUESTION, LONG_QUESTION]);
        assert_eq!(problems, []);
        let sessions = bgp.unwrap().sessions;
        assert_eq!(sessions.len(), 1);
        assert_eq!(
            (sessions[0].seen.peer.to_string().as_str(), sessions[0].seen.peer_type.as_str()),
            ("192.0.2.9", "uplink")
        );
    }

    #[test]
    fn the_answer_is_read_as_if_it_was_pasted() {
        let answer = "Name       Proto      Table      State  Since         Info\n\
                      kernel1    Kernel     master4    up     10:00:00.000  \n\
                      Mesh_192_0_2_9 BGP        ---        start  10:00:01.000  Active        Socket: Connection refused\n";
        let bgp = read(&"node-a.example".into(), answer).unwrap();
        assert_eq!((bgp.sessions.len(), bgp.protocols.len()), (1, 1), "{bgp:?}");
        assert!(!bgp.sessions[0].seen.is_established());
    }
}
