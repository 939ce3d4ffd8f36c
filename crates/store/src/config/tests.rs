use std::io::Write as _;

use proptest::prelude::*;

use super::*;

fn select_with(
    variables: &[(&str, &str)],
    file: Option<&str>,
    overrides: Overrides,
) -> Result<Selected, ConfigError> {
    select_on_node(variables, file, overrides, None)
}

fn select_on_node(
    variables: &[(&str, &str)],
    file: Option<&str>,
    overrides: Overrides,
    agent_settings: Option<&str>,
) -> Result<Selected, ConfigError> {
    let variables: BTreeMap<String, String> =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let directory = tempfile::tempdir().unwrap();
    let config_file = file.map(|text| {
        let path = directory.path().join("calicoctl.cfg");
        std::fs::File::create(&path).unwrap().write_all(text.as_bytes()).unwrap();
        path
    });
    let settings = directory.path().join("plumbd");
    if let Some(text) = agent_settings {
        std::fs::write(&settings, text).unwrap();
    }
    StoreConfig::from_sources(&Sources {
        overrides,
        config_file,
        default_config_file: directory.path().join("absent.cfg"),
        environment: &|name| variables.get(name).map(OsString::from),
        agent_settings: Some(settings),
    })
}

fn select(variables: &[(&str, &str)]) -> Selected {
    select_with(variables, None, Overrides::default()).unwrap()
}

fn refusal(variables: &[(&str, &str)]) -> String {
    select_with(variables, None, Overrides::default()).unwrap_err().to_string()
}

fn file(spec: &str) -> String {
    format!("apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nmetadata:\nspec:\n{spec}")
}

fn etcd(selected: Selected) -> EtcdConfig {
    match selected.config {
        StoreConfig::Etcd(settings) => settings,
        other => panic!("expected etcd, got {other}"),
    }
}

#[test]
fn nothing_said_is_sqlite_at_the_default_place() {
    let selected = select(&[]);
    assert_eq!(selected.config, StoreConfig::Sqlite { path: DEFAULT_SQLITE_PATH.into() });
    assert_eq!(selected.reason, Reason::Fallback);
}

#[test]
fn the_order_of_selection_is_named_then_etcd_then_kubernetes_then_sqlite() {
    let everything = [
        ("ETCD_ENDPOINTS", "http://a:2379"),
        ("KUBECONFIG", "/k"),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("SQLITE_PATH", "/x.db"),
    ];
    assert!(matches!(select(&everything).config, StoreConfig::Etcd(_)));
    assert_eq!(select(&everything).reason, Reason::Implied);
    assert!(matches!(select(&everything[1..]).config, StoreConfig::Kubernetes { .. }));
    assert!(matches!(select(&everything[2..]).config, StoreConfig::Kubernetes { .. }));
    assert_eq!(select(&everything[3..]).config, StoreConfig::Sqlite { path: "/x.db".into() });
    assert_eq!(select(&everything[3..]).reason, Reason::Implied);

    let mut named = everything.to_vec();
    named.push(("DATASTORE_TYPE", "sqlite"));
    let selected = select(&named);
    assert_eq!(
        selected,
        Selected {
            config: StoreConfig::Sqlite { path: "/x.db".into() },
            reason: Reason::Named,
            origin: Origin::Environment,
        }
    );
}

#[test]
fn a_kubernetes_store_is_reached_as_the_variables_say() {
    let selected = select(&[
        ("DATASTORE_TYPE", "kubernetes"),
        ("KUBECONFIG", "/a:/b"),
        ("K8S_CURRENT_CONTEXT", "far"),
        ("CALICO_API_GROUP", "projectcalico.org/v3"),
        ("K8S_API_ENDPOINT", "https://far:6443"),
        ("K8S_CA_FILE", "/ca"),
        ("K8S_API_TOKEN", "hunter2"),
        ("K8S_INSECURE_SKIP_TLS_VERIFY", "true"),
        ("FELIX_INTERFACEPREFIX", "tap,cali"),
    ]);
    assert!(!format!("{selected:?}").contains("hunter2"), "{selected:?}");
    let settings = KubeSettings {
        server: Some("https://far:6443".to_owned()),
        authority_file: Some("/ca".to_owned()),
        token: Some("hunter2".to_owned()),
        skips_verification: Some(true),
        ..KubeSettings::default()
    };
    let expected = KubeConfig {
        kubeconfig: Some("/a:/b".into()),
        context: Some("far".to_owned()),
        api_group: Some("projectcalico.org/v3".to_owned()),
        settings,
        device_prefixes: model::DevicePrefixes::configured("tap,cali"),
    };
    assert_eq!(selected.config, StoreConfig::Kubernetes(expected));
}

#[test]
fn a_context_means_kubernetes_unless_another_store_is_named() {
    let overrides = || Overrides { kube_context: Some("far".to_owned()), ..Overrides::default() };
    let config = |variables: &[(&str, &str)]| select_with(variables, None, overrides()).unwrap().config;
    assert!(
        matches!(config(&[]), StoreConfig::Kubernetes(KubeConfig { context: Some(far), .. }) if far == "far")
    );
    assert!(matches!(config(&[("ETCD_ENDPOINTS", "http://a")]), StoreConfig::Etcd(_)));
    assert!(matches!(config(&[("DATASTORE_TYPE", "sqlite")]), StoreConfig::Sqlite { .. }));
}

#[test]
fn the_calico_prefix_wins_and_empty_is_unset() {
    let selected = select(&[("DATASTORE_TYPE", "etcdv3"), ("CALICO_DATASTORE_TYPE", "sqlite")]);
    assert!(matches!(selected.config, StoreConfig::Sqlite { .. }));
    let selected = select(&[("SQLITE_PATH", "/x.db"), ("CALICO_SQLITE_PATH", ""), ("DATASTORE_TYPE", "")]);
    assert_eq!(selected.config, StoreConfig::Sqlite { path: "/x.db".into() });
}

#[test]
fn a_flag_wins_over_the_file_and_the_file_over_the_environment() {
    let text = file("  datastoreType: etcdv3\n  etcdEndpoints: https://a:2379, https://b:2379\n");
    let variables = [("DATASTORE_TYPE", "sqlite"), ("ETCD_USERNAME", "root"), ("ETCD_PASSWORD", "x")];
    let settings = etcd(select_with(&variables, Some(&text), Overrides::default()).unwrap());
    assert_eq!(settings.endpoints, ["https://a:2379", "https://b:2379"]);
    assert_eq!(settings.username, None, "the environment is no source beside a file");

    let overrides = Overrides {
        datastore_type: Some("sqlite".into()),
        sqlite_path: Some("/f.db".into()),
        ..Overrides::default()
    };
    let selected = select_with(&variables, Some(&text), overrides).unwrap();
    assert_eq!(selected.config, StoreConfig::Sqlite { path: "/f.db".into() });
}

#[test]
fn a_flag_of_one_store_means_that_store_whatever_the_environment_says() {
    let variables =
        [("KUBECONFIG", "/k"), ("DATASTORE_TYPE", "kubernetes"), ("ETCD_ENDPOINTS", "http://a:2379")];
    let flags = Overrides { sqlite_path: Some("/f.db".into()), ..Overrides::default() };
    let selected = select_with(&variables, None, flags).unwrap();
    assert_eq!(selected.config, StoreConfig::Sqlite { path: "/f.db".into() });
    assert_eq!(selected.reason, Reason::Named);

    let flags = Overrides { etcd_endpoints: Some("http://b:2379".into()), ..Overrides::default() };
    let settings = etcd(select_with(&variables[..2], None, flags).unwrap());
    assert_eq!(settings.endpoints, ["http://b:2379"]);
}

#[test]
fn every_field_of_calicoctls_file_is_known_and_json_is_read_too() {
    let text = file(
        "  datastoreType: etcdv3\n  etcdEndpoints: http://a:2379\n  etcdUsername: u\n  etcdPassword: p\n  \
         etcdKeyFile: /k\n  etcdCertFile: /c\n  etcdCACertFile: /ca\n  etcdKey:\n  etcdCert: ''\n  etcdCACert: null\n  \
         etcdDiscoverySrv: ''\n  kubeconfig: /kc\n  kubeconfigInline: x\n  k8sAPIEndpoint: e\n  k8sKeyFile: f\n  \
         k8sCertFile: f\n  k8sCAFile: f\n  k8sAPIToken: t\n  k8sInsecureSkipTLSVerify: true\n  \
         k8sDisableNodePoll: false\n  usePodCIDR: false\n  k8sClientQPS: 5\n  k8sClientBurst: 10\n  \
         k8sCurrentContext: c\n  calicoAPIGroup: projectcalico.org/v3\n  sqlitePath: /s\n",
    );
    let settings = etcd(select_with(&[], Some(&text), Overrides::default()).unwrap());
    assert_eq!(settings.ca, Some(PemSource::File("/ca".into())));
    assert_eq!(settings.key, Some(PemSource::File("/k".into())));
    assert_eq!(settings.username.as_deref(), Some("u"));

    let json =
        r#"{"apiVersion":"projectcalico.org/v3","kind":"CalicoAPIConfig","spec":{"sqlitePath":"/j.db"}}"#;
    let selected = select_with(&[], Some(json), Overrides::default()).unwrap();
    assert_eq!(selected.config, StoreConfig::Sqlite { path: "/j.db".into() });
}

#[test]
fn addresses_from_pod_cidrs_are_refused() {
    let on = file("  datastoreType: kubernetes\n  kubeconfig: /kc\n  usePodCIDR: true\n");
    let of_file = select_with(&[], Some(&on), Overrides::default());
    let variables = [("DATASTORE_TYPE", "kubernetes"), ("USE_POD_CIDR", "true")];
    for refused in [of_file, select_with(&variables, None, Overrides::default())] {
        assert!(matches!(refused, Err(ConfigError::PodCidrs)), "{refused:?}");
    }
    let off = [("DATASTORE_TYPE", "kubernetes"), ("USE_POD_CIDR", "false")];
    assert!(select_with(&off, None, Overrides::default()).is_ok());
}

#[test]
fn a_bad_file_is_refused_without_showing_its_secrets() {
    for text in [
        file("  etcdPasswort: hunter2\n"),
        file("  etcdPassword: [hunter2]\n"),
        file("  etcdPassword: 'hunter2\n"),
        "kind: CalicoAPIConfig\napiVersion: v2\nspec: {etcdPassword: hunter2}".to_owned(),
        "kind: hunter3\napiVersion: projectcalico.org/v3\nspec: {etcdPassword: hunter2}".to_owned(),
    ] {
        let error = select_with(&[], Some(&text), Overrides::default()).unwrap_err();
        assert!(matches!(error, ConfigError::FileInvalid { .. }), "{error}");
        assert!(error.hint().is_some());
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
    }
}

#[test]
fn a_named_file_must_be_there() {
    let sources = Sources::of_process(Some("/nonexistent/calicoctl.cfg".into()), Overrides::default());
    let error = StoreConfig::from_sources(&sources).unwrap_err();
    assert_eq!(error.to_string(), "cannot read the configuration file /nonexistent/calicoctl.cfg");
}

#[test]
fn contradictions_are_refused() {
    assert_eq!(refusal(&[("DATASTORE_TYPE", "mysql")]), "unknown datastore type \"mysql\"");
    assert_eq!(
        refusal(&[("DATASTORE_TYPE", "etcdv3")]),
        "the datastore type is etcdv3, but no endpoints are given"
    );
    assert_eq!(
        refusal(&[("ETCD_ENDPOINTS", " , ")]),
        "the datastore type is etcdv3, but no endpoints are given"
    );
    assert_eq!(
        refusal(&[("ETCD_ENDPOINTS", "http://a"), ("ETCD_DISCOVERY_SRV", "b")]),
        "both etcd endpoints and an etcd discovery domain are given"
    );
    assert_eq!(
        refusal(&[("ETCD_DISCOVERY_SRV", "example.org")]),
        "etcd discovery through DNS SRV records (example.org) is not supported yet"
    );
    assert_eq!(
        refusal(&[("ETCD_ENDPOINTS", "http://a"), ("ETCD_CERT_FILE", "/c")]),
        "an etcd client certificate needs a key and a key needs a certificate; only the certificate is given"
    );
    let mixed = file("  etcdEndpoints: http://a\n  etcdCACert: x\n  etcdKeyFile: /k\n  etcdCertFile: /c\n");
    let error = select_with(&[], Some(&mixed), Overrides::default()).unwrap_err();
    assert_eq!(error.to_string(), "etcd certificates are given both inline and as files");
}

const ON_NODE: &str = "# the node\nNODENAME=\"a\"\nETCD_ENDPOINTS=\"https://a:2379\"\nETCD_USERNAME=\"node-a\"\n\
                       ETCD_PASSWORD=\"se\\\"cret\"\nETCD_CA_CERT_FILE=/ca\n";

#[test]
fn on_a_node_the_agents_settings_name_the_store_where_nothing_else_does() {
    let on_node = |variables: &[(&str, &str)]| {
        select_on_node(variables, None, Overrides::default(), Some(ON_NODE)).unwrap()
    };
    // Being in a cluster, or having a kubeconfig for kubectl, names no store.
    for variables in [&[][..], &[("KUBECONFIG", "/k")], &[("KUBERNETES_SERVICE_HOST", "10.0.0.1")]] {
        let selected = on_node(variables);
        assert!(matches!(&selected.origin, Origin::AgentSettings(path) if path.ends_with("plumbd")));
        let etcd = etcd(selected);
        assert_eq!(etcd.endpoints, ["https://a:2379"]);
        assert_eq!((etcd.username.as_deref(), etcd.password.as_deref()), (Some("node-a"), Some("se\"cret")));
    }
    for variables in
        [("SQLITE_PATH", "/x.db"), ("DATASTORE_TYPE", "sqlite"), ("ETCD_ENDPOINTS", "http://b:2379")]
    {
        let selected = on_node(&[variables]);
        assert_eq!(selected.origin, Origin::Environment);
        if let StoreConfig::Etcd(etcd) = selected.config {
            assert_eq!((etcd.endpoints.join(","), etcd.password), ("http://b:2379".to_owned(), None));
        }
    }
    let flags = Overrides { sqlite_path: Some("/y.db".into()), ..Overrides::default() };
    let selected = select_on_node(&[], None, flags, Some(ON_NODE)).unwrap();
    assert_eq!(selected.config, StoreConfig::Sqlite { path: "/y.db".into() });
    let calicoctl = file("  etcdEndpoints: http://c:2379\n");
    let selected = select_on_node(&[], Some(&calicoctl), Overrides::default(), Some(ON_NODE)).unwrap();
    assert!(matches!(selected.origin, Origin::ConfigFile(_)));
    assert_eq!(etcd(selected).endpoints, ["http://c:2379"]);
}

#[test]
fn an_operator_may_sign_in_as_himself_with_the_agents_settings() {
    let variables = [("ETCD_USERNAME", "root")];
    let selected = select_on_node(&variables, None, Overrides::default(), Some(ON_NODE)).unwrap();
    let etcd = etcd(selected);
    // Never his name with the node's password.
    assert_eq!((etcd.username.as_deref(), etcd.password), (Some("root"), None));
    assert_eq!(etcd.endpoints, ["https://a:2379"]);
}

#[test]
fn agents_settings_that_cannot_be_read_are_an_error_and_no_reason_for_another_store() {
    let error = select_on_node(&[], None, Overrides::default(), Some("NODENAME\n")).unwrap_err();
    assert!(matches!(error, ConfigError::AgentSettingsInvalid { .. }), "{error}");
    assert!(error.to_string().ends_with("line 1 is not NAME=value"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let error = StoreConfig::from_sources(&Sources {
        overrides: Overrides::default(),
        config_file: None,
        default_config_file: PathBuf::new(),
        environment: &|_| None,
        agent_settings: Some(folder.path().to_owned()),
    });
    assert!(matches!(error, Err(ConfigError::AgentSettingsUnreadable { .. })), "{error:?}");
}

#[test]
fn a_variable_that_is_no_text_is_refused_rather_than_overlooked() {
    use std::os::unix::ffi::OsStringExt as _;
    let refused = StoreConfig::from_sources(&Sources {
        overrides: Overrides::default(),
        config_file: None,
        default_config_file: "/nowhere/calicoctl.cfg".into(),
        environment: &|name| (name == "SQLITE_PATH").then(|| OsString::from_vec(b"/tmp/\xff.db".to_vec())),
        agent_settings: None,
    });
    assert_eq!(refused.unwrap_err().to_string(), "the environment variable SQLITE_PATH is not UTF-8 text");
}

#[test]
fn printing_a_configuration_shows_no_secret() {
    let text = file(
        "  etcdEndpoints: https://a:2379\n  etcdUsername: u\n  etcdPassword: hunter2\n  etcdKey: hunter2\n  \
         etcdCert: hunter2\n  etcdCACert: hunter2\n",
    );
    let selected = select_with(&[], Some(&text), Overrides::default()).unwrap();
    let printed = format!("{selected:?} {}", selected.config);
    assert!(!printed.contains("hunter2"), "{printed}");
}

/// Calico does not take them there, but people write them there.
#[test]
fn credentials_in_endpoints_are_not_printed() {
    let endpoints = "http://root:hunter2@a:2379,https://root:hunt@er2@b:2379,root:hunter2@c:2379";
    let environment =
        [("ETCD_ENDPOINTS", endpoints), ("ETCD_USERNAME", "root"), ("ETCD_PASSWORD", "hunter2")];
    let overrides = Overrides { etcd_endpoints: Some(endpoints.to_owned()), ..Overrides::default() };
    let selected = select(&environment);
    let warning = selected.config.warning().unwrap();
    let printed = format!("{selected:?} {} {overrides:?} {warning}", selected.config);
    assert!(!printed.contains("hunter2") && !printed.contains("er2"), "{printed}");
    assert!(printed.contains("etcd at http://(hidden)@a:2379,https://(hidden)@b:2379,"), "{printed}");
    let environment = environment.map(|(name, value)| (name, Some(value.into())));
    let settings = Settings::from_environment(&|name| {
        environment.iter().find(|(known, _)| *known == name).and_then(|(_, value)| value.clone())
    });
    assert!(!format!("{:?}", settings.unwrap()).contains("er2"));
}

#[test]
fn credentials_over_plain_http_are_warned_of() {
    let given = |endpoints: &'static str| {
        let environment =
            [("ETCD_ENDPOINTS", endpoints), ("ETCD_USERNAME", "root"), ("ETCD_PASSWORD", "hunter2")];
        select(&environment).config.warning()
    };
    assert_eq!(
        given("http://a:2379,https://b:2379").as_deref(),
        Some(
            "the user name and the password for etcd are sent unencrypted to http://a:2379: use https:// endpoints"
        )
    );
    assert_eq!(given("https://a:2379"), None);
    assert_eq!(select(&[("ETCD_ENDPOINTS", "http://a:2379")]).config.warning(), None);
}

proptest! {
    #[test]
    fn arbitrary_files_never_panic(text in any::<String>()) {
        let _ = Settings::from_file_text("fuzz", &text);
        let _ = Settings::from_file_text("fuzz", &file(&text));
    }
}
