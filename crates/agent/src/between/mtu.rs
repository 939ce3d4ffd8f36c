//! Leaves word how large packets of pods may be, where Calico's agent does and plugins look. Pods that are there keep what they have.

use std::io;
use std::path::Path;
use std::time::Duration;

use host::survey::Survey;
use tracing::{info, warn};

use super::known::Known;

/// Pools and settings are announced; this is for cards.
const LOOK_EVERY: Duration = Duration::from_secs(30);
const START_WAIT: Duration = Duration::from_millis(50);

/// Never ends.
pub(super) async fn keep(known: &Known, file: &Path) {
    while !known.lock().is_complete() {
        tokio::time::sleep(START_WAIT).await;
    }
    loop {
        note_now(known, file).await;
        tokio::select! {
            () = known.mtu.notified() => {}
            () = tokio::time::sleep(LOOK_EVERY) => {}
        }
    }
}

/// As the cards, pools and settings are now.
pub(super) async fn note_now(known: &Known, file: &Path) {
    let Ok(Ok(links)) = tokio::task::spawn_blocking(Survey::links_here).await else { return };
    let links = links.iter().filter(|link| link.up);
    let mtu = known.lock().between.pod_mtu(links.map(|link| (link.name.as_str(), link.mtu)));
    match note(file, mtu) {
        Ok(false) => {}
        Ok(true) => info!("packets of pods may have {mtu} bytes; noted in {}", file.display()),
        Err(error) => warn!("{} cannot be written: {error}", file.display()),
    }
}

/// Whether it had to be written. A reader finds the old number or the new one.
fn note(file: &Path, mtu: u32) -> io::Result<bool> {
    let text = mtu.to_string();
    if std::fs::read_to_string(file).is_ok_and(|known| known.trim() == text) {
        return Ok(false);
    }
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let unfinished = file.with_extension("new");
    std::fs::write(&unfinished, text)?;
    std::fs::rename(&unfinished, file)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_written_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("calico").join("mtu");
        assert!(note(&file, 1450).unwrap());
        assert!(!note(&file, 1450).unwrap());
        assert!(note(&file, 1430).unwrap());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "1430");
        assert_eq!(std::fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }
}
