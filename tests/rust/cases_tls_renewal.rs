//! Certificates that are renewed while a client runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use grifo::Source;
use grifo_tests::Listener;

use super::*;

const HEALED: Duration = Duration::from_secs(5);

/// A client whose three files are its own, and the front that it speaks to.
struct Case {
    _server: Server,
    front: TlsFront,
    /// Those that the front shows at first.
    old: Arc<Certificates>,
    new: Arc<Certificates>,
    files: [PathBuf; 3],
    limiter: Limiter,
}

impl Case {
    /// The front wants a certificate, if it is to; the client trusts these.
    fn new(needs_client_certificate: bool, trusted: impl Fn(&Certificates, &Certificates) -> String) -> Self {
        let server = Server::start_default();
        let names = TlsOptions::default().names;
        let [old, new] = [0, 1].map(|_| Arc::new(Certificates::new(&names, false)));
        let front = TlsFront::start_showing(server.addr(), Arc::clone(&old), needs_client_certificate);
        let files = [
            old.write("own-ca.pem", &trusted(&old, &new)),
            old.write("own.pem", &read(&old.client_cert_file())),
            old.write("own.key", &read(&old.client_key_file())),
        ];
        let [ca, certificate, key] = &files;
        let builder = Client::builder(front.url()).tls_ca_file(ca).tls_certificate(certificate).tls_key(key);
        let limiter = limiter(builder.timeout(SECOND / 4));
        Self { _server: server, front, old, new, files, limiter }
    }

    async fn is_decided_by_the_store(&self) {
        eventually("a decision of the store", HEALED, async || {
            self.limiter.check("k").await.unwrap().source == Source::Store
        })
        .await;
    }

    async fn fails_with(&self, hint: &str) {
        let late = self.limiter.clone().on_failure(FailurePolicy::Raise);
        eventually(hint, HEALED, async || late.check("k").await.is_err_and(|error| error.message().contains(hint)))
            .await;
    }

    fn renew_identity(&self) {
        fs::copy(self.new.client_cert_file(), &self.files[1]).unwrap();
        fs::copy(self.new.client_key_file(), &self.files[2]).unwrap();
    }
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

fn both(old: &Certificates, new: &Certificates) -> String {
    [old, new].map(|certificates| read(&certificates.ca_file())).concat()
}

#[tokio::test]
async fn a_renewed_client_certificate_is_shown_without_a_new_client() {
    let mut case = Case::new(true, both);
    case.is_decided_by_the_store().await;
    case.front.show(&case.new, true);
    case.fails_with("refused the certificate of tls_certificate").await;
    case.renew_identity();
    case.is_decided_by_the_store().await;
}

#[tokio::test]
async fn a_renewed_authority_is_trusted_and_the_old_one_no_more() {
    let mut case = Case::new(false, |old, _| read(&old.ca_file()));
    case.is_decided_by_the_store().await;
    case.front.show(&case.new, false);
    case.fails_with("not signed by any authority in tls_ca_file").await;
    fs::copy(case.new.ca_file(), &case.files[0]).unwrap();
    case.is_decided_by_the_store().await;
    let old = Arc::clone(&case.old);
    case.front.show(&old, false);
    case.fails_with("not signed by any authority in tls_ca_file").await;
}

#[tokio::test]
async fn files_that_cannot_be_used_leave_the_old_ones_in_use_and_are_logged_once() {
    let mut case = Case::new(true, both);
    let logged = errors_about(case.old.dir());
    case.is_decided_by_the_store().await;
    let half = read(&case.new.client_key_file()).replace("-----END", "S3cr3t");
    let breakages: [&dyn Fn(&Path); 3] =
        [&|file| fs::write(file, "S3cr3t").unwrap(), &|file| fs::write(file, &half).unwrap(), &|file| {
            fs::remove_file(file).unwrap()
        }];
    for break_file in breakages {
        case.files.iter().for_each(|file| break_file(file));
        let old = Arc::clone(&case.old);
        case.front.show(&old, true);
        case.is_decided_by_the_store().await;
    }
    eventually("two lines in the log", HEALED, async || logged().len() >= 2).await;
    let said = logged();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].contains("tls_ca_file") && said[1].contains("tls_certificate"), "{said:?}");
    assert!(!said.concat().contains("S3cr3t"), "{said:?}");

    fs::copy(case.new.ca_file(), &case.files[0]).unwrap();
    case.renew_identity();
    case.front.show(&case.new, true);
    case.is_decided_by_the_store().await;
    assert_eq!(logged().len(), 2);
}

#[tokio::test]
async fn a_certificate_waits_for_its_key() {
    let mut case = Case::new(true, both);
    case.is_decided_by_the_store().await;
    fs::copy(case.new.client_cert_file(), &case.files[1]).unwrap();
    let old = Arc::clone(&case.old);
    case.front.show(&old, true);
    case.is_decided_by_the_store().await;
    fs::copy(case.new.client_key_file(), &case.files[2]).unwrap();
    case.front.show(&case.new, true);
    case.is_decided_by_the_store().await;
}

/// The errors about files in a folder that were logged so far, by whichever thread: files are read beside the runtime.
fn errors_about(folder: &Path) -> impl Fn() -> Vec<String> {
    static LISTENER: OnceLock<Listener> = OnceLock::new();
    let listener = LISTENER.get_or_init(|| {
        let listener = Listener::default();
        tracing::subscriber::set_global_default(listener.clone()).expect("the only one");
        listener
    });
    let folder = folder.to_string_lossy().into_owned();
    move || listener.text().lines().filter(|line| line.contains(&folder)).map(str::to_owned).collect()
}
