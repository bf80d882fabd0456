//! Services: the parts of a node's program, started in order and stopped in reverse.

use std::time::Duration;

use async_trait::async_trait;
use ostler_runtime::Drained;

/// A part that runs until it is stopped.
#[async_trait]
pub(super) trait Service: Send {
    /// Ends it; what was started later has ended already. Running tasks may take `patience` to finish. Returns what became of them.
    async fn stop(self: Box<Self>, patience: Duration) -> Drained;
}

/// What has been started so far, in order.
#[derive(Default)]
pub(super) struct Services(Vec<Box<dyn Service>>);

impl Services {
    pub(super) fn started(&mut self, service: impl Service + 'static) {
        self.0.push(Box::new(service));
    }

    /// Stops all, the last one first.
    pub(super) async fn stop(&mut self, patience: Duration) -> Drained {
        let mut sum = Drained::default();
        while let Some(service) = self.0.pop() {
            let Drained { finished, handed_back } = service.stop(patience).await;
            sum = Drained { finished: sum.finished + finished, handed_back: sum.handed_back + handed_back };
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);

    #[async_trait]
    impl Service for Named {
        async fn stop(self: Box<Self>, _patience: Duration) -> Drained {
            self.1.lock().expect("no panic").push(self.0);
            Drained { finished: 1, handed_back: 2 }
        }
    }

    #[tokio::test]
    async fn services_stop_in_reverse_order_each_once() {
        let (stopped, mut services) = (Arc::default(), Services::default());
        for name in ["supervisor", "node", "jobs"] {
            services.started(Named(name, Arc::clone(&stopped)));
        }
        assert_eq!(services.stop(Duration::ZERO).await, Drained { finished: 3, handed_back: 6 });
        assert_eq!(services.stop(Duration::ZERO).await, Drained::default());
        assert_eq!(*stopped.lock().expect("no panic"), ["jobs", "node", "supervisor"]);
    }
}
