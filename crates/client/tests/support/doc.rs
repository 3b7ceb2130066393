// Included by the examples in the documentation: runs one on a fresh server that ends with it.

include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/module.rs"));

#[allow(dead_code, reason = "each example uses one of the two")]
pub fn with_server<F, O>(example: F)
where
    F: FnOnce(String) -> O,
    O: std::future::Future<Output = Result<(), Box<dyn std::error::Error>>>,
{
    let settings = redislock_testkit::Server::builder(redislock_testkit::Version::Redis70);
    let server = settings.module(module_under_test()).start();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Err(error) = runtime.block_on(example(server.url())) {
        panic!("{error}");
    }
}

#[allow(dead_code, reason = "each example uses one of the two")]
pub fn with_server_blocking<F>(example: F)
where
    F: FnOnce(String) -> Result<(), Box<dyn std::error::Error>>,
{
    let settings = redislock_testkit::Server::builder(redislock_testkit::Version::Redis70);
    let server = settings.module(module_under_test()).start();
    if let Err(error) = example(server.url()) {
        panic!("{error}");
    }
}
