//! Another program makes the interfaces (`dataplane_options.type: grpc`).

use std::path::Path;
use std::sync::{Arc, Mutex};

use host::backend::messages::{AddReply, AddRequest, DelReply, DelRequest};
use serde_json::json;
use tonic::codegen::tokio_stream::wrappers::UnixListenerStream;
use tonic::codegen::{Body, BoxFuture, Context, Poll, StdError, http};
use tonic::server::{Grpc, NamedService, UnaryService};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

use crate::place::{NETWORK, both, networks};

#[derive(Clone, Debug, Default)]
struct Program(Arc<Mutex<Seen>>);

#[derive(Debug, Default)]
struct Seen {
    added: Vec<AddRequest>,
    removed: Vec<DelRequest>,
    refuses: bool,
}

impl UnaryService<AddRequest> for Program {
    type Response = AddReply;
    type Future = BoxFuture<Response<AddReply>, Status>;

    fn call(&mut self, request: Request<AddRequest>) -> Self::Future {
        let mut seen = self.0.lock().unwrap();
        seen.added.push(request.into_inner());
        let reply = match seen.refuses {
            true => AddReply { error_message: "no more taps".to_owned(), ..AddReply::default() },
            false => AddReply {
                successful: true,
                host_interface_name: "tap7".to_owned(),
                container_mac: "02:00:00:00:00:07".to_owned(),
                ..AddReply::default()
            },
        };
        Box::pin(async { Ok(Response::new(reply)) })
    }
}

impl UnaryService<DelRequest> for Program {
    type Response = DelReply;
    type Future = BoxFuture<Response<DelReply>, Status>;

    fn call(&mut self, request: Request<DelRequest>) -> Self::Future {
        self.0.lock().unwrap().removed.push(request.into_inner());
        Box::pin(async { Ok(Response::new(DelReply { successful: true, ..DelReply::default() })) })
    }
}

impl NamedService for Program {
    const NAME: &'static str = "cni.CniDataplane";
}

impl<B> tonic::codegen::Service<http::Request<B>> for Program
where
    B: Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<tonic::body::Body>;
    type Error = std::convert::Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        let program = self.clone();
        Box::pin(async move {
            Ok(match request.uri().path() {
                "/cni.CniDataplane/Add" => {
                    let codec: ProstCodec<AddReply, AddRequest> = ProstCodec::default();
                    Grpc::new(codec).unary(program, request).await
                }
                _ => {
                    let codec: ProstCodec<DelReply, DelRequest> = ProstCodec::default();
                    Grpc::new(codec).unary(program, request).await
                }
            })
        })
    }
}

/// Serves on a socket until it is dropped.
struct Served {
    program: Program,
    _runtime: tokio::runtime::Runtime,
}

fn serve(socket: &Path) -> Served {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let program = Program::default();
    let listener = runtime.block_on(async { tokio::net::UnixListener::bind(socket) }).unwrap();
    let serving = program.clone();
    runtime.spawn(async move {
        tonic::transport::Server::builder()
            .serve_with_incoming(serving, UnixListenerStream::new(listener))
            .await
            .unwrap();
    });
    Served { program, _runtime: runtime }
}

#[test]
fn another_program_makes_the_interfaces() {
    both("another_program_makes_the_interfaces", |place| {
        place.pool("pods", "10.244.0.0/24");
        let socket = place.lab.folder().join("dataplane.sock");
        let served = serve(&socket);
        let options =
            json!({"type": "grpc", "socket": format!("unix://{}", socket.display()), "colour": "red"});
        let pod = place.pod("shop", "web-0");
        let call =
            |verb| place.of_pod(verb, &pod).with("dataplane_options", options.clone()).with("mtu", 1400);
        let answer = place.answer(&call("ADD"));
        let netns = pod.netns().path().display().to_string();
        let interfaces = json!([
            {"name": "tap7"}, {"name": "eth0", "mac": "02:00:00:00:00:07", "mtu": 1400, "sandbox": netns},
        ]);
        assert_eq!(answer["interfaces"], interfaces);
        let seen = served.program.0.lock().unwrap().added.clone();
        let [asked] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!((asked.interface_name.as_str(), asked.netns.as_str()), ("eth0", netns.as_str()));
        assert_eq!(asked.settings.as_ref().unwrap().mtu, 1400);
        assert_eq!(asked.container_ips[0].address, answer["routes"][0]["dst"].as_str().unwrap());
        assert_eq!(asked.container_routes, ["0.0.0.0/0", "::/0"]);
        let workload = asked.workload.as_ref().unwrap();
        assert_eq!(workload.name, "node--a-k8s-web--0-eth0");
        let named =
            [&workload.namespace, &workload.pod, &workload.node, &workload.orchestrator, &workload.endpoint];
        assert_eq!(named, ["shop", "web-0", "node-a", "k8s", "eth0"]);
        let colour = asked.dataplane_options.get("colour").map(String::as_str);
        assert_eq!((asked.dataplane_options.len(), colour), (3, Some("red")));
        let endpoint = place.endpoint(&pod).unwrap();
        assert_eq!(endpoint.spec("interfaceName"), Some(&json!("tap7")));
        assert_eq!(endpoint.spec("mac"), Some(&json!("02:00:00:00:00:07")));
        assert_eq!(networks(&answer)[0], endpoint.spec("ipNetworks").unwrap()[0].as_str().unwrap());
        assert_eq!(pod.netns().ip(&["-br", "link"]).unwrap().lines().count(), 1, "we made nothing");

        place.answer(&call("DEL"));
        assert_eq!(served.program.0.lock().unwrap().removed[0].interface_name, "eth0");
        assert_eq!((place.books.endpoints().len(), place.books.handles().len()), (0, 0));

        served.program.0.lock().unwrap().refuses = true;
        assert!(place.error(&call("ADD")).contains("no more taps"));
        assert_eq!((place.books.endpoints().len(), place.books.handles().len()), (0, 0));
        drop(served);
        assert!(place.error(&call("ADD")).contains("cannot reach the dataplane"));
        assert_eq!(place.books.handles(), [] as [String; 0], "{NETWORK}");
    });
}
