//! Networks, sockets and signals.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{self as unix, UnixDatagram, UnixListener, UnixStream};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

use crate::{EACCES, ECONNREFUSED, EPERM, Setting, Test, confine, errno, require};

pub(crate) const TESTS: &[Test] = &[
    ("network::opens_no_socket_of_a_network", opens_no_socket_of_a_network),
    ("network::does_not_use_inherited_sockets_anew", does_not_use_inherited_sockets_anew),
    ("network::keeps_connected_unix_sockets", keeps_connected_unix_sockets),
    ("network::signals_only_itself_and_its_children", signals_only_itself_and_its_children),
];

fn opens_no_socket_of_a_network(setting: &Setting) {
    assert!(TcpStream::connect((Ipv4Addr::LOCALHOST, setting.port)).is_ok());
    let enforcement = setting.confinement(&[]).apply();
    require("network", &enforcement.network);
    let full = enforcement.network == gpux_confinement::Protection::Full;
    let expected = if full { EPERM } else { EACCES };
    for address in [([127, 0, 0, 1], setting.port), ([127, 0, 0, 1], 1), ([10, 0, 0, 1], 53)] {
        assert_eq!(errno(TcpStream::connect(SocketAddr::from(address))), expected, "{address:?}");
    }
    assert_eq!(errno(TcpListener::bind("127.0.0.1:0")), expected);
    assert_eq!(errno(TcpListener::bind("0.0.0.0:0")), expected);
    if !full {
        return;
    }
    assert_eq!(errno(TcpListener::bind("[::]:0")), EPERM);
    assert_eq!(errno(UdpSocket::bind("127.0.0.1:0")), EPERM);
    assert_eq!(errno(UdpSocket::bind("[::1]:0")), EPERM);
    let raw = SocketType::RAW;
    for (family, kind) in [
        (AddressFamily::INET, raw),
        (AddressFamily::NETLINK, raw),
        (AddressFamily::PACKET, raw),
        (AddressFamily::VSOCK, SocketType::STREAM),
    ] {
        assert_eq!(socket(family, kind, None).err(), Some(Errno::PERM), "{family:?}");
    }
}

/// The parent of a worker should pass no such socket; nothing new comes of it if it does.
fn does_not_use_inherited_sockets_anew(setting: &Setting) {
    let open = || socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let (first, second) = (open(), open());
    let enforcement = setting.confinement(&[]).apply();
    require("network", &enforcement.network);
    let address = SocketAddr::from(([127, 0, 0, 1], setting.port));
    assert!([Errno::CONNREFUSED, Errno::ACCESS].contains(&connect(&first, &address).unwrap_err()));
    require("signals", &enforcement.signals);
    assert_eq!(bind(&second, &SocketAddr::from(([127, 0, 0, 1], 0))), Err(Errno::ACCESS), "Landlock, Linux 6.7");
}

fn keeps_connected_unix_sockets(setting: &Setting) {
    let service = setting.path("secret/socket");
    let (mut before, mut other) = UnixStream::pair().unwrap();
    assert!(UnixStream::connect(&service).is_ok());
    let enforcement = setting.confinement(&[]).apply();
    require("system calls", &enforcement.system_calls);
    before.write_all(b"request").unwrap();
    let mut request = [0; 7];
    other.read_exact(&mut request).unwrap();
    assert_eq!(&request, b"request");
    // Their buffers are memory that nobody counts.
    assert_eq!(errno(UnixStream::pair()), EPERM);
    assert!(socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).is_ok());
    let name = format!("gpux-confinement-{}", std::process::id());
    let abstract_name = unix::SocketAddr::from_abstract_name(name).unwrap();
    let _listener = UnixListener::bind_addr(&abstract_name).unwrap();
    // To services of the system, connections and datagrams alike.
    assert_eq!(errno(UnixStream::connect(service)), ECONNREFUSED);
    assert_eq!(errno(UnixStream::connect_addr(&abstract_name)), ECONNREFUSED);
    assert_eq!(errno(UnixDatagram::unbound()), EPERM);
    assert_eq!(errno(UnixDatagram::pair()), EPERM);
    assert_eq!(socket(AddressFamily::UNIX, SocketType::RAW, None).err(), Some(Errno::PERM));
}

fn signals_only_itself_and_its_children(setting: &Setting) {
    let parent = rustix::process::getppid().unwrap();
    assert!(test_kill_process(parent).is_ok());
    let enforcement = confine(setting.confinement(&["/bin/cat"]));
    require("signals", &enforcement.signals);
    assert_eq!(test_kill_process(parent), Err(Errno::PERM));
    assert_eq!(kill_process(parent, Signal::CONT), Err(Errno::PERM));
    assert!(test_kill_process(rustix::process::getpid()).is_ok());
    let fifo = std::process::Stdio::piped();
    let mut child = std::process::Command::new("/bin/cat").stdin(fifo).spawn().unwrap();
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&child.wait().unwrap()), Some(9));
    let own: io::Result<String> = fs::read_to_string("/proc/self/comm");
    assert!(own.is_ok());
}
