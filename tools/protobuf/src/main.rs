//! Writes the committed Rust code of the `.proto` files beside this tool. With `--check` it writes nothing and names the
//! files that are not what it would write.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail, ensure};
use prost_build::{Config, Service, ServiceGenerator};
use tempfile::TempDir;

fn main() -> Result<ExitCode> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let is_check = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--check"] => true,
        _ => bail!("usage: protobuf [--check]"),
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut stale = 0;
    for (file, code) in [
        ("crates/store/src/etcd/rpc/generated.rs", etcd()?),
        ("crates/host/src/cri/messages/generated.rs", cri()?),
        ("crates/lab/src/kubelet/generated.rs", cri_server()?),
        ("crates/host/src/backend/generated.rs", backend()?),
    ] {
        let path = root.join(file);
        if fs::read_to_string(&path).is_ok_and(|found| found == code) {
            continue;
        }
        stale += 1;
        if is_check {
            println!(
                "{file} is not what tools/protobuf generates: cargo run --manifest-path tools/protobuf/Cargo.toml"
            );
        } else {
            fs::write(&path, code).with_context(|| format!("cannot write {file}"))?;
            println!("written: {file}");
        }
    }
    Ok(ExitCode::from(u8::from(is_check && stale > 0)))
}

/// Keys and values are `Bytes`, so that a decoded page shares the buffer in which it was received.
fn etcd() -> Result<String> {
    let mut config = Config::new();
    // A password must not get into a log.
    config.bytes(["."]).skip_debug(["etcdserverpb.AuthenticateRequest"]).service_generator(Box::new(Calls));
    generate("etcd", config)
}

fn cri() -> Result<String> {
    let mut config = Config::new();
    config.service_generator(Box::new(Calls));
    generate("cri", config)
}

/// Maps in the order of their keys, so that the same request is the same bytes.
fn backend() -> Result<String> {
    let mut config = Config::new();
    config.btree_map(["."]).service_generator(Box::new(Calls));
    generate("cnibackend", config)
}

/// Only the server: the lab takes the messages from `host`.
fn cri_server() -> Result<String> {
    let server = tonic_prost_build::configure().build_client(false).build_transport(false);
    let mut config = Config::new();
    config.extern_path(".runtime.v1", "::host::cri::messages").service_generator(server.service_generator());
    generate("cri", config)
}

fn generate(name: &str, mut config: Config) -> Result<String> {
    let folder = TempDir::new()?;
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let proto = source.join(format!("{name}.proto"));
    config.out_dir(folder.path()).compile_protos(&[&proto], &[&source])?;
    let made: Vec<PathBuf> = fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    let [path] = &made[..] else { bail!("{name}.proto became {} files", made.len()) };
    // As the workspace writes code, so that `cargo fmt` leaves it alone.
    let mut rustfmt = Command::new("rustfmt");
    rustfmt.args(["--edition", "2024", "--config-path"]).arg(source.join("../..")).arg(path);
    ensure!(rustfmt.status().context("rustfmt could not be started")?.success(), "rustfmt failed");
    let code = fs::read_to_string(path)?;
    Ok(code.replacen("prost-build.", &format!("tools/protobuf from {name}.proto."), 1))
}

/// Writes the trait `Call`, and implements it for each request that has one answer.
struct Calls;

impl ServiceGenerator for Calls {
    fn generate(&mut self, service: Service, buffer: &mut String) {
        for method in
            service.methods.iter().filter(|method| !method.client_streaming && !method.server_streaming)
        {
            *buffer += &format!(
                "impl Call for {} {{ type Answer = {}; const PATH: &'static str = \"/{}.{}/{}\"; }}\n",
                method.input_type, method.output_type, service.package, service.proto_name, method.proto_name
            );
        }
    }

    fn finalize_package(&mut self, _package: &str, buffer: &mut String) {
        *buffer += "/// A request with one answer.\n\
            pub trait Call: ::prost::Message + Clone + Default + 'static {\n\
            type Answer: ::prost::Message + Default + 'static;\n\
            /// As gRPC names the method.\n\
            const PATH: &'static str;\n\
            }\n";
    }
}
