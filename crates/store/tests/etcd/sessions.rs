//! What becomes of a watch when its session does not last as long as it does.

use model::{Key, KeyRange};
use store::etcd::{EtcdConfig, EtcdStore};
use store::{Event, Store};
use testkit::etcd::{Setup, start_or_skip};
use testkit::process::run;

use crate::next;

/// Users being turned off and on ends every session; a watch notices when it has to find a member again. However
/// often that happens, it signs in anew.
#[tokio::test]
async fn a_watch_outlives_many_sessions() {
    let setup = Setup::with_root_password("swordfish");
    let Some(mut cluster) = start_or_skip("a_watch_outlives_many_sessions", setup) else { return };
    let config = EtcdConfig {
        username: Some("root".to_owned()),
        password: Some("swordfish".to_owned()),
        ..EtcdConfig::new(cluster.endpoints())
    };
    // Two stores, two sessions: the one that writes must not renew the session of the one that watches.
    let watching: &dyn Store = &EtcdStore::connect(config.clone()).await.unwrap();
    let (_, revision) = watching.list_all(KeyRange::Handles).await.unwrap();
    let mut watch = watching.watch(KeyRange::Handles, revision).await.unwrap();
    for restart in 0..4 {
        let writing: &dyn Store = &EtcdStore::connect(config.clone()).await.unwrap();
        let key = Key::Handle(format!("after-{restart}").into());
        writing.create(key.clone(), b"{}".to_vec()).await.unwrap();
        let Some(Event::Put(seen)) = next(&mut watch).await else { panic!("a record was created") };
        assert_eq!(seen.key, key, "after {restart} restarts");
        run(cluster.etcdctl().args(["auth", "disable"])).unwrap();
        run(cluster.etcdctl().args(["auth", "enable"])).unwrap();
        cluster.kill(0);
        cluster.restart(0).unwrap();
        cluster.wait_healthy().unwrap();
    }
}
