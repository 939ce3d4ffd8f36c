//! `plumb collect`: the evidence in one file, to be looked at elsewhere.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use book::load::Progress;
use evidence::Unseen;
use evidence::node::ClockReading;
use gather::LiveSources;
use gather::bundle::BundleWriter;
use jiff::Timestamp;
use model::KeyRange;
use store::{ListRequest, Store};

use super::live;
use crate::cli::Global;
use crate::cli::doctor::Collect;
use crate::failure::{Failure, Failures};

/// Records that are held in memory at once.
const PAGE: usize = 1_000;

pub(crate) async fn run(global: &Global, collect: &Collect) -> Result<(), Failures> {
    let sources = live::open(global, &collect.this_node, &[]).await?;
    if let Err(why) = sources.store() {
        eprintln!("note: the store was not collected: {why}");
    }
    let path = collect.out.clone().unwrap_or_else(name_by_time);
    if path == Path::new("-") {
        let mut bundle = BundleWriter::new(BufWriter::new(std::io::stdout()));
        looks(&mut bundle, &sources, collect.settle).await?;
        bundle.finish()?;
        return Ok(());
    }
    // Written beside and renamed: a bundle that is there is whole.
    let unfinished = path.with_added_extension("unfinished");
    let written = write_file(&unfinished, &sources, collect.settle).await;
    let finished =
        written.and_then(|()| std::fs::rename(&unfinished, &path).map_err(|error| cannot(&path, &error)));
    if finished.is_err() {
        // It may never have been made.
        let _ = std::fs::remove_file(&unfinished);
    }
    finished?;
    eprintln!("wrote {}", path.display());
    Ok(())
}

async fn write_file(path: &Path, sources: &LiveSources, settle: f64) -> Result<(), Failure> {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    let mut bundle = BundleWriter::new(BufWriter::new(file.map_err(|error| cannot(path, &error))?));
    looks(&mut bundle, sources, settle).await?;
    let file = bundle.finish().map_err(|error| cannot(path, &error))?;
    file.into_inner().map_err(|error| cannot(path, error.error())).map(drop)
}

/// Two looks, unless there is no time between them.
async fn looks(
    bundle: &mut BundleWriter<impl Write>,
    sources: &LiveSources,
    settle: f64,
) -> Result<(), Failure> {
    look(bundle, sources).await?;
    if settle > 0.0 {
        tokio::time::sleep(Duration::from_secs_f64(settle)).await;
        look(bundle, sources).await?;
    }
    Ok(())
}

async fn look(bundle: &mut BundleWriter<impl Write>, sources: &LiveSources) -> Result<(), Failure> {
    bundle.look(Timestamp::now())?;
    let reading = match sources.store() {
        Ok(store) => records(bundle, store).await?,
        Err(why) => {
            bundle.unseen(&Unseen::Store { why: why.to_owned() })?;
            None
        }
    };
    let witnesses = sources.witnesses(&Progress::default()).await;
    witnesses.unseen.iter().for_each(|unseen| eprintln!("note: {unseen}"));
    bundle.kubernetes(&witnesses)?;
    for mut nodes in sources.of_nodes().await {
        if let Some(reading) = reading {
            nodes.note_clock(reading);
        }
        bundle.nodes(nodes)?;
    }
    Ok(())
}

/// Every record as it is, page by page; and what this machine's clock showed when the store was read.
async fn records(
    bundle: &mut BundleWriter<impl Write>,
    store: &Arc<dyn Store>,
) -> Result<Option<ClockReading>, Failure> {
    let mut request = ListRequest::new(KeyRange::Everything).with_limit(PAGE);
    let mut reading = None;
    let before = Timestamp::now();
    loop {
        let page = store.list(request.clone()).await?;
        // All pages are of the first one's moment. A store whose revisions are no numbers does not tell an order.
        reading = reading.or_else(|| {
            let revision = page.revision.as_str().parse().ok()?;
            Some(ClockReading { revision, before, after: Timestamp::now() })
        });
        for record in &page.records {
            bundle.record(&record.key, &record.value)?;
        }
        match page.next {
            Some(next) => request = request.continued(next),
            None => {
                bundle.whole_store()?;
                return Ok(reading);
            }
        }
    }
}

fn name_by_time() -> PathBuf {
    PathBuf::from(format!("plumb-{}.bundle", Timestamp::now().strftime("%Y%m%dT%H%M%SZ")))
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("cannot write {}", path.display())).caused_by(error)
}
