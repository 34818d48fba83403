//! The end that somebody asks for.

/// Ends when the user wants an end, or the system.
pub(crate) async fn interrupted() {
    tokio::select! {
        Ok(()) = tokio::signal::ctrl_c() => {}
        () = terminated() => {}
        else => std::future::pending().await,
    }
}

async fn terminated() {
    #[cfg(unix)]
    if let Ok(mut signal) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        signal.recv().await;
        return;
    }
    std::future::pending().await
}
