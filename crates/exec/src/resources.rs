//! Resources by type: what executors share, such as the supervisor of children, and the shared state of handlers.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

/// At most one value of each type. The program provides them; a kind of pool, or a handler, asks for the types that it knows.
#[derive(Clone, Debug, Default)]
pub struct Resources(HashMap<TypeId, Arc<dyn Any + Send + Sync>>);

impl Resources {
    /// The same with this one.
    #[must_use]
    pub fn with<T: Send + Sync + 'static>(mut self, resource: T) -> Self {
        self.0.insert(TypeId::of::<T>(), Arc::new(resource));
        self
    }

    #[must_use]
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref()
    }
}
