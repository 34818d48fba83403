use std::io::{Read, Write};
use std::time::Duration;

use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::*;
use crate::server::Server;

/// What a client trusts, and what it shows.
fn client(trusted: &TlsFront, shown: Option<&TlsFront>) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted.ca_file()).unwrap()).unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    match shown {
        None => builder.with_no_client_auth(),
        Some(front) => {
            let certificate = CertificateDer::from_pem_file(front.client_cert_file()).unwrap();
            let key = PrivateKeyDer::from_pem_file(front.client_key_file()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    }
}

fn ping(addr: SocketAddr, name: &str, config: ClientConfig) -> std::io::Result<String> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let stream = std::net::TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut stream = StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), stream);
    stream.write_all(b"PING\r\n")?;
    let mut answer = [0; 7];
    stream.read_exact(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[test]
fn a_server_is_reached_by_each_of_its_names() {
    let server = Server::start_default();
    let front = TlsFront::start(server.addr());
    assert_eq!(front.url(), format!("rediss://localhost:{}", front.addr().port()));
    for name in ["localhost", "127.0.0.1", "::1"] {
        assert_eq!(ping(front.addr(), name, client(&front, None)).unwrap(), "+PONG\r\n");
    }
    let v6 = (Ipv6Addr::LOCALHOST, front.port()).into();
    if std::net::TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
        assert_eq!(ping(v6, "localhost", client(&front, None)).unwrap(), "+PONG\r\n");
    }
}

#[test]
fn certificates_that_are_wrong_are_noticed() {
    let server = Server::start_default();
    let (front, stranger) = (TlsFront::start(server.addr()), TlsFront::start(server.addr()));
    let failure = |front: &TlsFront, name: &str, config| ping(front.addr(), name, config).unwrap_err().to_string();
    assert!(failure(&front, "localhost", client(&stranger, None)).contains("UnknownIssuer"));
    assert!(failure(&front, "example.com", client(&front, None)).contains("not valid for name"));
    let old = TlsFront::start_with(server.addr(), &TlsOptions { is_expired: true, ..TlsOptions::default() });
    assert!(failure(&old, "localhost", client(&old, None)).contains("expired"));
}

#[test]
fn a_client_without_a_certificate_of_the_authority_is_refused() {
    let server = Server::start_default();
    let (front, stranger) = (TlsFront::start_mutual(server.addr()), TlsFront::start(server.addr()));
    assert_eq!(ping(front.addr(), "localhost", client(&front, Some(&front))).unwrap(), "+PONG\r\n");
    for shown in [None, Some(&stranger)] {
        ping(front.addr(), "localhost", client(&front, shown)).unwrap_err();
    }
}

#[test]
fn a_front_closes_its_connections_and_shows_other_certificates() {
    let server = Server::start_default();
    let (mut front, other) = (TlsFront::start(server.addr()), TlsFront::start(server.addr()));
    let (addr, config) = (front.addr(), client(&front, None));
    let mut open = std::net::TcpStream::connect(addr).unwrap();
    open.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    front.show(other.certificates(), true);
    let end = open.read(&mut [0]).map_err(|e| e.kind());
    assert!(matches!(end, Ok(0) | Err(std::io::ErrorKind::ConnectionReset)), "{end:?}");
    assert!(ping(addr, "localhost", config).unwrap_err().to_string().contains("UnknownIssuer"));
    ping(addr, "localhost", client(&other, None)).unwrap_err();
    assert_eq!(ping(addr, "localhost", client(&other, Some(&other))).unwrap(), "+PONG\r\n");
}

#[test]
fn a_dropped_front_closes_its_connections_and_removes_its_files() {
    let server = Server::start_default();
    let front = TlsFront::start(server.addr());
    let (addr, files, config) = (front.addr(), front.ca_file(), client(&front, None));
    let mut open = std::net::TcpStream::connect(addr).unwrap();
    open.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    drop(front);
    // An end, or a reset: no silence.
    let end = open.read(&mut [0]).map_err(|e| e.kind());
    assert!(matches!(end, Ok(0) | Err(std::io::ErrorKind::ConnectionReset)), "{end:?}");
    ping(addr, "localhost", config).unwrap_err();
    assert!(!files.exists());
}
