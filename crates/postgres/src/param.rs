//! Statement parameters with explicit types. Behind a pooler a statement cannot be prepared in advance, so the server
//! cannot be asked for the types of its parameters.

use tokio_postgres::types::{ToSql, Type};

use crate::row::Uid;

/// A value whose type is known without asking the server.
pub(crate) trait Param: ToSql {
    /// The type to declare to the server.
    fn sql_type(&self) -> Type;
}

/// The server types for a Rust type, and for a list of it.
pub(crate) trait Typed {
    const TYPE: Type;
    const LIST: Type;
}

impl<T: Typed + ToSql> Param for T {
    fn sql_type(&self) -> Type {
        T::TYPE
    }
}

macro_rules! typed {
    ($($ours:ty => $type:ident, $list:ident;)*) => {
        $(impl Typed for $ours {
            const TYPE: Type = Type::$type;
            const LIST: Type = Type::$list;
        })*
    };
}

typed! {
    bool => BOOL, BOOL_ARRAY;
    i16 => INT2, INT2_ARRAY;
    i32 => INT4, INT4_ARRAY;
    i64 => INT8, INT8_ARRAY;
    String => TEXT, TEXT_ARRAY;
    &str => TEXT, TEXT_ARRAY;
    Vec<u8> => BYTEA, BYTEA_ARRAY;
    Uid => UUID, UUID_ARRAY;
}

impl<T: Typed> Typed for Option<T> {
    const TYPE: Type = T::TYPE;
    const LIST: Type = T::LIST;
}

/// There are no lists of lists: these would need one length, and are sent as text instead.
impl<T: Typed> Typed for Vec<T> {
    const TYPE: Type = T::LIST;
    const LIST: Type = T::LIST;
}

impl<T: Typed> Typed for &[T] {
    const TYPE: Type = T::LIST;
    const LIST: Type = T::LIST;
}
