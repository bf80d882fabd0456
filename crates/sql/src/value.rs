//! Statement parameters and row cells, independent of the driver.

use ostler_core::{Id, SessionId, TaskId, WorkerId};

/// A row that holds a value Ostler never writes, for example one that was edited by hand.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// A statement parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    Null,
    Int(i64),
    Bool(bool),
    Text(&'a str),
    Bytes(&'a [u8]),
    Id(Id),
}

/// A type that can be a statement parameter.
pub trait ToValue {
    fn to_value(&self) -> Value<'_>;
}

/// A list of statement parameters.
#[macro_export]
macro_rules! params {
    ($($param:expr),* $(,)?) => { &[$($crate::ToValue::to_value(&$param)),*] };
}

macro_rules! to_value {
    ($($type:ty: $this:ident => $value:expr;)*) => {
        $(impl ToValue for $type {
            fn to_value(&self) -> Value<'_> {
                let $this = self;
                $value
            }
        })*
    };
}

to_value! {
    i64: number => Value::Int(*number);
    i32: number => Value::Int(i64::from(*number));
    i16: number => Value::Int(i64::from(*number));
    u32: number => Value::Int(i64::from(*number));
    u64: number => Value::Int(i64::try_from(*number).unwrap_or(i64::MAX));
    usize: number => Value::Int(i64::try_from(*number).unwrap_or(i64::MAX));
    bool: truth => Value::Bool(*truth);
    str: text => Value::Text(text);
    String: text => Value::Text(text);
    Vec<u8>: bytes => Value::Bytes(bytes);
    Id: id => Value::Id(*id);
    TaskId: id => Value::Id(id.0);
    SessionId: id => Value::Id(id.0);
    WorkerId: id => Value::Id(id.0);
}

impl<T: ToValue> ToValue for Option<T> {
    fn to_value(&self) -> Value<'_> {
        self.as_ref().map_or(Value::Null, ToValue::to_value)
    }
}

impl<T: ToValue + ?Sized> ToValue for &T {
    fn to_value(&self) -> Value<'_> {
        (**self).to_value()
    }
}

/// One column of one row, as the driver has it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Cell<'a> {
    Null,
    Int(i64),
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// A type that can be read from a cell.
pub trait Column: Sized {
    /// # Errors
    /// When the cell holds another type, or a number out of range.
    fn from_cell(cell: Cell<'_>) -> Result<Self, Unreadable>;
}

fn mismatch(cell: Cell<'_>, wanted: &str) -> Unreadable {
    Unreadable(format!("{cell:?} is not {wanted}"))
}

macro_rules! integers {
    ($($type:ty),*) => {
        $(impl Column for $type {
            fn from_cell(cell: Cell<'_>) -> Result<Self, Unreadable> {
                match cell {
                    Cell::Int(number) => number.try_into().map_err(|_| mismatch(cell, stringify!($type))),
                    Cell::Null | Cell::Text(_) | Cell::Bytes(_) => Err(mismatch(cell, "a number")),
                }
            }
        })*
    };
}

integers!(i64, i32, i16, u32, u64);

impl Column for bool {
    fn from_cell(cell: Cell<'_>) -> Result<Self, Unreadable> {
        i64::from_cell(cell).map(|number| number != 0)
    }
}

impl Column for String {
    fn from_cell(cell: Cell<'_>) -> Result<Self, Unreadable> {
        match cell {
            Cell::Text(text) => Ok(text.to_owned()),
            Cell::Null | Cell::Int(_) | Cell::Bytes(_) => Err(mismatch(cell, "a text")),
        }
    }
}

impl Column for Vec<u8> {
    fn from_cell(cell: Cell<'_>) -> Result<Self, Unreadable> {
        match cell {
            Cell::Bytes(bytes) => Ok(bytes.to_vec()),
            Cell::Null | Cell::Int(_) | Cell::Text(_) => Err(mismatch(cell, "bytes")),
        }
    }
}

impl Column for Id {
    fn from_cell(cell: Cell<'_>) -> Result<Self, Unreadable> {
        let Cell::Bytes(bytes) = cell else { return Err(mismatch(cell, "an id")) };
        bytes.try_into().map(Self::from_bytes).map_err(|_| mismatch(cell, "an id"))
    }
}

impl<T: Column> Column for Option<T> {
    fn from_cell(cell: Cell<'_>) -> Result<Self, Unreadable> {
        if cell == Cell::Null { Ok(None) } else { T::from_cell(cell).map(Some) }
    }
}

/// One row of an answer.
pub trait Row {
    /// The error of the driver.
    type Error;

    /// # Errors
    /// When there is no such column, or it has a type that no table of Ostler has.
    fn cell(&self, at: usize) -> Result<Cell<'_>, Self::Error>;

    /// The driver's error for a value that Ostler never writes.
    fn unreadable(error: Unreadable) -> Self::Error;

    /// # Errors
    /// When the column cannot be read as this type.
    fn get<T: Column>(&self, at: usize) -> Result<T, Self::Error> {
        T::from_cell(self.cell(at)?).map_err(Self::unreadable)
    }
}
