//! Edits of several steps as one commit: read, edit, write if nobody was faster, else start over.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use model::{Key, as_attached};
use repair::{Edit, Edited, Page, is_same_record};
use store::{Change, Lookup, MAX_CHANGES, Revision, Store, StoreError};

use crate::history::How;

/// How often a commit is tried against others who are faster.
const ATTEMPTS: u32 = 500;
const PAUSE: Duration = Duration::from_millis(1);
const PAUSE_AWAY: Duration = Duration::from_millis(500);

/// How steps are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Manner {
    /// All that can be made, or none after the first surprise.
    pub(crate) keeps_going: bool,
    /// How long a store may be away in the middle.
    pub(crate) patience: Duration,
}

/// The edits of one step.
#[derive(Clone, Debug)]
pub(crate) struct Part<'a> {
    pub(crate) step: u32,
    pub(crate) edits: &'a [Edit],
    /// Why a new look did not confirm it. Then it may only turn out to be done already.
    pub(crate) unconfirmed: Option<&'a str>,
}

/// What became of one step.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Made {
    pub(crate) step: u32,
    pub(crate) how: How,
    pub(crate) said: Option<String>,
    /// In the order in which it is to be taken back.
    pub(crate) undo: Vec<Edit>,
}

/// What is said of a step that was planned once and would not be planned any more.
pub(crate) fn not_confirmed(why: &str) -> String {
    format!("the observation right before it did not confirm it: {why}")
}

/// Steps whose records fit into one commit, from the front. At least one.
pub(crate) fn batch<'p, 'a>(parts: &'p [Part<'a>]) -> &'p [Part<'a>] {
    let mut keys: std::collections::BTreeSet<Key> = std::collections::BTreeSet::new();
    for (at, part) in parts.iter().enumerate() {
        let is_alone = part.edits.iter().any(Edit::is_whole);
        if is_alone && at > 0 {
            return &parts[..at];
        }
        keys.extend(part.edits.iter().map(Edit::key));
        if keys.len() > MAX_CHANGES && at > 0 {
            return &parts[..at];
        }
        if is_alone {
            return &parts[..=at];
        }
    }
    parts
}

/// What would be written, and what each step comes to.
struct Draft {
    changes: Vec<Change>,
    /// What stands in the store if the commit happens.
    becomes: BTreeMap<Key, Option<Vec<u8>>>,
    made: Vec<Made>,
}

/// Makes the edits of these steps, up to the first surprise or all that can be made. `begun` is told of every attempt before
/// it is made. Says also how many records were changed.
pub(crate) async fn make(
    store: &dyn Store,
    parts: &[Part<'_>],
    manner: Manner,
    begun: &mut (dyn FnMut(&[Made]) -> Result<(), crate::HistoryError> + Send),
) -> Result<(Vec<Made>, usize), crate::MendError> {
    let mut uncertain: Option<Draft> = None;
    let mut attempts = 0;
    let mut told: Vec<Made> = Vec::new();
    let start = tokio::time::Instant::now();
    loop {
        let pages = match read(store, parts).await {
            Ok(pages) => pages,
            Err(error) => {
                wait_if_away(error, start, manner.patience).await?;
                continue;
            }
        };
        if let Some(before) = uncertain.take()
            && before.is_in(&pages)
        {
            return Ok((before.made, before.changes.len()));
        }
        let draft = draft(parts, pages, manner.keeps_going);
        if draft.changes.is_empty() {
            return Ok((draft.made, 0));
        }
        // What is on disk already need not be told again: the shorter the way from reading to writing, the fewer are faster.
        if draft.made != told {
            begun(&draft.made)?;
            told.clone_from(&draft.made);
        }
        match store.commit(draft.changes.clone()).await {
            Ok(_) => return Ok((draft.made, draft.changes.len())),
            Err(StoreError::Uncertain { .. } | StoreError::Stopped { .. }) => uncertain = Some(draft),
            Err(
                StoreError::Conflict { .. } | StoreError::NotFound { .. } | StoreError::AlreadyExists { .. },
            ) if attempts < ATTEMPTS => {
                attempts += 1;
                tokio::time::sleep(PAUSE * (attempts % 7)).await;
            }
            Err(error) => wait_if_away(error, start, manner.patience).await?,
        }
    }
}

/// A store that is away for a while is waited for; anything else ends it.
async fn wait_if_away(
    error: StoreError,
    start: tokio::time::Instant,
    patience: Duration,
) -> Result<(), crate::MendError> {
    let is_away = matches!(error, StoreError::Unreachable { .. } | StoreError::Uncertain { .. });
    if !is_away || start.elapsed() >= patience {
        return Err(error.into());
    }
    tokio::time::sleep(PAUSE_AWAY).await;
    Ok(())
}

async fn read(store: &dyn Store, parts: &[Part<'_>]) -> Result<BTreeMap<Key, Page>, StoreError> {
    let mut keys: Vec<Key> = parts.iter().flat_map(|part| part.edits.iter().map(Edit::key)).collect();
    keys.sort();
    keys.dedup();
    let are_views = !store.capabilities().endpoints_are_records;
    let mut pages = BTreeMap::new();
    for keys in keys.chunks(MAX_CHANGES) {
        let found = store.read(keys.iter().cloned().map(Lookup::Record).collect()).await?;
        for (key, records) in keys.iter().zip(found) {
            let record = records.first().map(|record| {
                // What is planned is about the attachment, not about what the kubelet still reports.
                let value =
                    if are_views { as_attached(&record.value) } else { Cow::Borrowed(&record.value[..]) };
                (value, record.revision.as_str())
            });
            let record = record.as_ref().map(|(value, revision)| (&**value, *revision));
            pages.insert(key.clone(), Page::new(key.clone(), record));
        }
    }
    Ok(pages)
}

fn draft(parts: &[Part<'_>], mut pages: BTreeMap<Key, Page>, keeps_going: bool) -> Draft {
    let now = Timestamp::now();
    let mut made = Vec::new();
    for part in parts {
        let before: Vec<(Key, Page)> = part
            .edits
            .iter()
            .map(Edit::key)
            .filter_map(|key| Some((key.clone(), pages.get(&key)?.clone())))
            .collect();
        let mut one = edit(part, &mut pages, now);
        if let (How::Done, Some(why)) = (one.how, part.unconfirmed) {
            one = Made { how: How::Surprise, said: Some(not_confirmed(why)), undo: Vec::new(), ..one };
        }
        let is_surprise = one.how == How::Surprise;
        made.push(one);
        if is_surprise {
            pages.extend(before);
        }
        if is_surprise && !keeps_going {
            break;
        }
    }
    let mut draft = Draft { changes: Vec::new(), becomes: BTreeMap::new(), made };
    for (key, page) in &pages {
        let Some(text) = page.written() else { continue };
        let revision = page.revision().map(Revision::new);
        draft.becomes.insert(key.clone(), text.map(<[u8]>::to_vec));
        draft.changes.extend(match (revision, text) {
            (Some(revision), Some(text)) => Some(Change::update(key.clone(), text.to_vec(), revision)),
            (Some(revision), None) => Some(Change::delete(key.clone(), revision)),
            (None, Some(text)) => Some(Change::create(key.clone(), text.to_vec())),
            (None, None) => None,
        });
    }
    draft
}

fn edit(part: &Part<'_>, pages: &mut BTreeMap<Key, Page>, now: Timestamp) -> Made {
    let mut made = Made { step: part.step, how: How::Already, said: None, undo: Vec::new() };
    for edit in part.edits {
        let page = pages.get_mut(&edit.key()).expect("every key was read");
        match page.edit(edit, now) {
            Ok(Edited::Already) => {}
            Ok(Edited::Made(undo)) => {
                made.how = How::Done;
                made.undo.insert(0, undo.map_or_else(|| page.take_back(), |undo| *undo));
            }
            Err(surprise) => {
                return Made {
                    step: part.step,
                    how: How::Surprise,
                    said: Some(surprise.to_string()),
                    undo: Vec::new(),
                };
            }
        }
    }
    made
}

impl Draft {
    /// Whether the store has what this would have written.
    fn is_in(&self, pages: &BTreeMap<Key, Page>) -> bool {
        let is_same = |text: &Option<Vec<u8>>, page: &Page| match (text, page.text()) {
            (Some(text), Some(found)) => is_same_record(text, found),
            (text, found) => text.is_none() && found.is_none(),
        };
        self.becomes.iter().all(|(key, text)| pages.get(key).is_some_and(|page| is_same(text, page)))
    }
}
