//! The PostgreSQL ceiling: the bare statements of enqueue, claim and fenced finish, each for a whole batch, on two connections; the
//! finish of one batch is sent together with the claim of the next.
//! It has no policies, limits, counts, sessions to check, or workers to wake.

use std::time::{Duration, Instant};

use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use crate::Error;
use crate::ceiling::{Rows, batches};
use crate::load::{KIND, PAYLOAD, Tally};

/// Concurrent connections, on both sides.
pub(crate) const CONNECTIONS: usize = 2;
/// Rows per commit while a backlog is created.
const FILL_BATCH: usize = 10_000;

const READY: i16 = 0;
const WAITING: i16 = 4;
const MEASURED_QUEUE: i32 = 1;
const OTHER_QUEUE: i32 = 2;

// Like the store's: ids made by callers, a payload, and the one attempt with its worker.
const TABLES: &str = "
create schema bare;
create table bare.task(
    id bigint generated always as identity primary key, uid uuid not null, queue int not null, kind text not null,
    payload text not null, priority int not null, run_at bigint not null, state smallint not null, token int not null default 0,
    session int, attempts int not null default 0, created_at bigint not null, started_at bigint, finished_at bigint,
    worker uuid, output text) with (fillfactor=80);
create unique index on bare.task(uid);
create index on bare.task(queue, priority desc, run_at, id) where state=0;
create index on bare.task(session) where state in (1,2);
";
const ENQUEUE: &str = "insert into bare.task(uid,queue,kind,payload,priority,run_at,state,created_at)
    select u.uid,$2,u.kind,u.payload,$3,0,$4,0 from unnest($1::uuid[],$5::text[],$6::text[]) u(uid,kind,payload)";
const CLAIM: &str =
    "update bare.task t set state=2, token=token+1, session=$2, attempts=attempts+1, started_at=9
    from (select id from bare.task where queue=1 and state=0 and run_at<=10
        order by priority desc, run_at, id limit $1 for update skip locked) s
    where t.id=s.id returning t.id, t.token, t.payload";
const FINISH: &str = "update bare.task t set state=3, session=null, finished_at=9, worker=$3, output=u.output
    from unnest($1::bigint[],$2::int[],$4::text[]) u(id,token,output) where t.id=u.id and t.token=u.token";

const PLANS: &str = "set enable_seqscan=off; set enable_hashjoin=off; set enable_mergejoin=off";

/// Ids and tokens of claimed tasks.
type Held = (Vec<i64>, Vec<i32>);

/// The ceiling, in its own schema, which is recreated.
pub(crate) struct Bare {
    hands: Vec<Hand>,
}

/// One connection with its statements.
struct Hand {
    client: Client,
    number: i32,
    enqueue: Statement,
    claim: Statement,
    finish: Statement,
    next_uid: u128,
}

/// Opens a connection, closed with its client.
pub(crate) async fn connect(url: &str) -> Result<Client, Error> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        // Calls on the client report the error.
        let _ = connection.await;
    });
    Ok(client)
}

impl Bare {
    /// Creates the tables, and opens the connections.
    pub(crate) async fn make(url: &str, schema: &str) -> Result<Self, Error> {
        let text = |sql: &str| sql.replace("bare", schema);
        connect(url).await?.batch_execute(&text(TABLES)).await?;
        let mut hands = Vec::new();
        for number in 0..CONNECTIONS {
            let client = connect(url).await?;
            // The plans of a large table, whatever its current size: the store does the same.
            client.batch_execute(PLANS).await?;
            let (enqueue, claim, finish) = (
                client.prepare(&text(ENQUEUE)).await?,
                client.prepare(&text(CLAIM)).await?,
                client.prepare(&text(FINISH)).await?,
            );
            let next_uid = (0x0190 << 112) + ((number as u128) << 64);
            hands.push(Hand { client, number: i32::try_from(number)?, enqueue, claim, finish, next_uid });
        }
        Ok(Self { hands })
    }

    /// Creates backlog rows.
    pub(crate) async fn fill(&mut self, rows: Rows, count: usize) -> Result<(), Error> {
        let (queue, priority, state) = match rows {
            Rows::Finished => {
                self.fill_ready(count).await?;
                let done = self.drain(crate::postgres::FILL, Duration::MAX).await?.done;
                return if done < count {
                    Err(format!("the ceiling did {done} of {count}").into())
                } else {
                    Ok(())
                };
            }
            Rows::Elsewhere => (OTHER_QUEUE, 0, READY),
            Rows::Behind => (MEASURED_QUEUE, -100, READY),
            Rows::Waiting => (MEASURED_QUEUE, 100, WAITING),
        };
        for size in batches(count, FILL_BATCH) {
            self.hands[0].enqueue(size, queue, priority, state).await?;
        }
        Ok(())
    }

    /// Enqueues measured tasks.
    pub(crate) async fn fill_ready(&mut self, count: usize) -> Result<(), Error> {
        for size in batches(count, FILL_BATCH) {
            self.hands[0].enqueue(size, MEASURED_QUEUE, 0, READY).await?;
        }
        Ok(())
    }

    /// Claims and finishes for about this long, or until nothing is left.
    pub(crate) async fn drain(&mut self, batch: usize, about: Duration) -> Result<Tally, Error> {
        let begun = Instant::now();
        let drains = self.hands.iter().map(|hand| hand.drain(batch, begun, about));
        let done = all(drains).await?;
        Ok(Tally { done, took: begun.elapsed() })
    }

    /// Enqueues, claims and finishes for about this long.
    pub(crate) async fn cycle(&mut self, batch: usize, about: Duration) -> Result<Tally, Error> {
        let begun = Instant::now();
        let cycles = self.hands.iter_mut().map(|hand| hand.cycles(batch, begun, about));
        let done = all(cycles).await?;
        Ok(Tally { done, took: begun.elapsed() })
    }

    /// Enqueues for about this long.
    pub(crate) async fn enqueues(&mut self, batch: usize, about: Duration) -> Result<Tally, Error> {
        let begun = Instant::now();
        let enqueues = self.hands.iter_mut().map(|hand| hand.enqueues(batch, begun, about));
        let done = all(enqueues).await?;
        Ok(Tally { done, took: begun.elapsed() })
    }

    /// Enqueues one durable task.
    pub(crate) async fn enqueue_one(&mut self) -> Result<(), Error> {
        self.hands[0].enqueue(1, MEASURED_QUEUE, 0, READY).await
    }
}

/// Runs all of them concurrently, and adds up the tasks they did.
pub(crate) async fn all<F>(work: impl IntoIterator<Item = F>) -> Result<usize, Error>
where
    F: Future<Output = Result<usize, Error>>,
{
    let mut work = work.into_iter();
    let (Some(first), Some(second), None) = (work.next(), work.next(), work.next()) else {
        return Err(format!("{CONNECTIONS} work at once").into());
    };
    let (first, second) = tokio::try_join!(first, second)?;
    Ok(first + second)
}

impl Hand {
    async fn enqueue(&mut self, size: usize, queue: i32, priority: i32, state: i16) -> Result<(), Error> {
        let first = self.next_uid;
        self.next_uid += size as u128;
        let uids: Vec<RawUid> = (first..self.next_uid).map(|uid| RawUid(uid.to_be_bytes())).collect();
        let (kinds, payloads) = (vec![KIND; size], vec![PAYLOAD; size]);
        let made = self
            .client
            .execute(&self.enqueue, &[&uids, &queue, &priority, &state, &kinds, &payloads])
            .await?;
        if made == size as u64 { Ok(()) } else { Err("the ceiling lost a task".into()) }
    }

    async fn claim(&self, batch: usize) -> Result<Held, Error> {
        let limit = i64::try_from(batch)?;
        let params: [&(dyn ToSql + Sync); 2] = [&limit, &self.number];
        let rows = self.client.query(&self.claim, &params).await?;
        // Read because a real claim reads it.
        let payloads: Vec<String> = rows.iter().map(|row| row.get(2)).collect();
        std::hint::black_box(payloads);
        Ok(rows.iter().map(|row| (row.get::<_, i64>(0), row.get::<_, i32>(1))).unzip())
    }

    async fn finish(&self, (ids, tokens): &Held) -> Result<usize, Error> {
        if ids.is_empty() {
            return Ok(0);
        }
        let (worker, outputs) = (RawUid([7; 16]), vec!["null"; ids.len()]);
        let params: [&(dyn ToSql + Sync); 4] = [ids, tokens, &worker, &outputs];
        let done = self.client.execute(&self.finish, &params).await?;
        if done == ids.len() as u64 { Ok(ids.len()) } else { Err("the ceiling lost a lease".into()) }
    }

    async fn drain(&self, batch: usize, begun: Instant, about: Duration) -> Result<usize, Error> {
        let (mut done, mut held) = (0, self.claim(batch).await?);
        while !held.0.is_empty() && begun.elapsed() < about {
            let (finished, claimed) = tokio::try_join!(biased; self.finish(&held), self.claim(batch))?;
            done += finished;
            held = claimed;
        }
        Ok(done + self.finish(&held).await?)
    }

    async fn enqueues(&mut self, batch: usize, begun: Instant, about: Duration) -> Result<usize, Error> {
        let mut done = 0;
        while done == 0 || begun.elapsed() < about {
            self.enqueue(batch, MEASURED_QUEUE, 0, READY).await?;
            done += batch;
        }
        Ok(done)
    }

    async fn cycles(&mut self, batch: usize, begun: Instant, about: Duration) -> Result<usize, Error> {
        let mut done = 0;
        while done == 0 || begun.elapsed() < about {
            self.enqueue(batch, MEASURED_QUEUE, 0, READY).await?;
            let held = self.claim(batch).await?;
            done += self.finish(&held).await?;
        }
        Ok(done)
    }
}

/// Sixteen bytes, in binary format.
#[derive(Clone, Copy, Debug)]
struct RawUid([u8; 16]);

impl ToSql for RawUid {
    fn to_sql(
        &self,
        _: &tokio_postgres::types::Type,
        out: &mut bytes::BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Error> {
        out.extend_from_slice(&self.0);
        Ok(tokio_postgres::types::IsNull::No)
    }

    tokio_postgres::types::accepts!(UUID);
    tokio_postgres::types::to_sql_checked!();
}
