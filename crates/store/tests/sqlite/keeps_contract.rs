//! One file, several handles: the contract.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rusqlite::params;
use store::{OpenMode, SqliteStore, Store};

use super::{Scratch, raw};
use crate::contract::{Backend, run_all};

struct Sqlite {
    scratch: Scratch,
    made: Mutex<usize>,
}

impl Sqlite {
    fn path(&self) -> std::path::PathBuf {
        self.scratch.path(&format!("store-{}.db", self.made.lock().unwrap()))
    }
}

#[async_trait]
impl Backend for Sqlite {
    async fn fresh(&self) -> Arc<dyn Store> {
        *self.made.lock().unwrap() += 1;
        Arc::new(SqliteStore::open(self.path(), OpenMode::CreateIfMissing).unwrap())
    }

    async fn another(&self) -> Arc<dyn Store> {
        Arc::new(SqliteStore::open(self.path(), OpenMode::Existing).unwrap())
    }

    async fn forget_history(&self) {
        raw(&self.path())
            .execute_batch("BEGIN IMMEDIATE; DELETE FROM history; UPDATE store SET floor = revision; COMMIT")
            .unwrap();
    }

    async fn put_foreign(&self, key: &str, value: &str) {
        let mut connection = raw(&self.path());
        let transaction = connection.transaction().unwrap();
        transaction.execute("UPDATE store SET revision = revision + 1", []).unwrap();
        let revision: i64 =
            transaction.query_row("SELECT revision FROM store", [], |row| row.get(0)).unwrap();
        transaction
            .execute("INSERT INTO history (id, key) VALUES (?1, ?2)", params![revision * 256, key])
            .unwrap();
        transaction
            .execute("INSERT INTO record VALUES (?1, ?2, ?3)", params![key, revision, value.as_bytes()])
            .unwrap();
        transaction.commit().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeps_the_contract() {
    run_all(&Sqlite { scratch: Scratch::new(), made: Mutex::new(0) }).await;
}

#[tokio::test]
async fn keeps_the_contract_on_one_thread() {
    run_all(&Sqlite { scratch: Scratch::new(), made: Mutex::new(0) }).await;
}
