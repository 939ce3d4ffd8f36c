//! Writes the MTU of pods to the file from which plugins read it, as Calico's agent does. Existing pods keep theirs.

use std::io;
use std::path::Path;
use std::time::Duration;

use host::survey::Survey;
use tracing::{info, warn};

use super::cache::Cache;

/// The store announces pools and settings; this is for network interfaces.
const CHECK_EVERY: Duration = Duration::from_secs(30);
const START_WAIT: Duration = Duration::from_millis(50);

/// Never ends.
pub(super) async fn keep(cache: &Cache, file: &Path) {
    while !cache.lock().is_complete() {
        tokio::time::sleep(START_WAIT).await;
    }
    loop {
        update(cache, file).await;
        tokio::select! {
            () = cache.mtu.notified() => {}
            () = tokio::time::sleep(CHECK_EVERY) => {}
        }
    }
}

/// From the network interfaces, pools and settings.
pub(super) async fn update(cache: &Cache, file: &Path) {
    let Ok(Ok(links)) = tokio::task::spawn_blocking(Survey::links_here).await else { return };
    let links = links.iter().filter(|link| link.up);
    let mtu = cache.lock().between.pod_mtu(links.map(|link| (link.name.as_str(), link.mtu)));
    match write(file, mtu) {
        Ok(false) => {}
        Ok(true) => info!(mtu, file = %file.display(), "changed the MTU of new pods"),
        Err(error) => warn!(file = %file.display(), %error, "cannot write the MTU of pods"),
    }
}

/// Whether it had to be written. A reader finds the old number or the new one.
fn write(file: &Path, mtu: u32) -> io::Result<bool> {
    let text = mtu.to_string();
    if std::fs::read_to_string(file).is_ok_and(|written| written.trim() == text) {
        return Ok(false);
    }
    if let Some(directory) = file.parent() {
        std::fs::create_dir_all(directory)?;
    }
    let temporary = file.with_extension("new");
    std::fs::write(&temporary, text)?;
    std::fs::rename(&temporary, file)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_once() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("calico").join("mtu");
        assert!(write(&file, 1450).unwrap());
        assert!(!write(&file, 1450).unwrap());
        assert!(write(&file, 1430).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "1430");
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }
}
