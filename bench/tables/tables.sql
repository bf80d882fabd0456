-- Two shapes for the tasks of a store, by bare statements: see docs/decisions/0018-one-updated-task-row.md.
drop schema if exists shapes cascade; create schema shapes;
create sequence shapes.uid cache 100;
-- A: one table, as now
create table shapes.one(id bigint generated always as identity primary key, uid uuid not null, queue bigint not null, lane bigint not null,
 rank bigint not null, run_at bigint not null, token bigint not null, trouble bigint not null, created_at bigint not null,
 session bigint, limit_id bigint, started_at bigint, finished_at bigint, cancel_at bigint, late_at bigint,
 runs integer not null, failures integer not null, phase smallint not null, why smallint not null, priority smallint not null,
 ran bytea, extras text, failure text, payload text not null, output text) with (fillfactor=80, autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_cost_delay=0);
create unique index on shapes.one(uid);
create index on shapes.one(lane,rank,id) where phase=0;
create index on shapes.one(run_at,id) where phase=1 and why<>7;
create index on shapes.one(limit_id,phase,rank,id) where limit_id is not null and phase in (0,2);
create index on shapes.one(late_at,id) where late_at is not null and phase<3;
create index on shapes.one(session,id) where phase in (3,4);
create index on shapes.one(phase,finished_at,id) where phase>4;
-- B: a task row never updated; ready, lease, ended rows
create table shapes.apart(id bigint generated always as identity primary key, uid uuid not null, queue bigint not null, lane bigint not null,
 rank bigint not null, created_at bigint not null, limit_id bigint, late_at bigint, priority smallint not null, extras text, payload text not null);
create unique index on shapes.apart(uid);
create table shapes.apart_ready(lane bigint not null, rank bigint not null, id bigint not null, token bigint not null, trouble bigint not null, runs integer not null, failures integer not null, primary key(lane,rank,id)) with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_cost_delay=0);
create table shapes.apart_lease(id bigint primary key, session bigint not null, token bigint not null, trouble bigint not null, runs integer not null, failures integer not null, phase smallint not null, started_at bigint) with (autovacuum_vacuum_scale_factor=0.02, autovacuum_vacuum_cost_delay=0);
create index on shapes.apart_lease(session,id);
create table shapes.apart_end(id bigint primary key, phase smallint not null, finished_at bigint not null, started_at bigint, token bigint not null, trouble bigint not null, runs integer not null, failures integer not null, ran bytea, failure text, output text);
create index on shapes.apart_end(phase,finished_at,id);

create procedure shapes.fill_one(n int, k int) language plpgsql as $$ begin for i in 1..n/k loop
 insert into shapes.one(uid,queue,lane,rank,run_at,token,trouble,created_at,runs,failures,phase,why,priority,payload) select lpad(to_hex(nextval('shapes.uid')),32,'0')::uuid,1,1,i*k+g,0,0,0,0,0,0,0,0,0,repeat('x',200) from generate_series(1,k) g; commit; end loop; end $$;
create procedure shapes.fill_apart(n int, k int) language plpgsql as $$ begin for i in 1..n/k loop
 with t as (insert into shapes.apart(uid,queue,lane,rank,created_at,priority,payload) select lpad(to_hex(nextval('shapes.uid')),32,'0')::uuid,1,1,i*k+g,0,0,repeat('x',200) from generate_series(1,k) g returning id,lane,rank)
 insert into shapes.apart_ready select lane,rank,id,0,0,0,0 from t; commit; end loop; end $$;
create procedure shapes.drain_one(k int, sess bigint) language plpgsql as $$ declare ids bigint[]; pay text[]; begin
 set enable_seqscan=off; set enable_hashjoin=off; set enable_mergejoin=off;
 loop
 with p as (select id from shapes.one where lane=1 and phase=0 order by rank,id limit k for update skip locked),
 u as (update shapes.one t set phase=3, token=token+1, session=sess from p where t.id=p.id returning t.id,t.payload)
 select array_agg(id order by id), array_agg(payload) into ids,pay from u; commit; exit when ids is null;
 update shapes.one t set phase=5, why=0, runs=1, started_at=5, finished_at=9, ran='\x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff', output='null' from unnest(ids) n(id) where t.id=n.id and t.token=1 and t.phase-3=0; commit;
 end loop; end $$;
create procedure shapes.drain_apart(k int, sess bigint) language plpgsql as $$ declare ids bigint[]; pay text[]; begin
 set enable_seqscan=off; set enable_hashjoin=off; set enable_mergejoin=off;
 loop
 with p as (select ctid from shapes.apart_ready where lane=1 order by rank,id limit k for update skip locked),
 d as (delete from shapes.apart_ready r using p where r.ctid=p.ctid returning r.*),
 l as (insert into shapes.apart_lease select id,sess,token+1,trouble,runs,failures,3,null from d returning id)
 select array_agg(l.id order by l.id), array_agg(t.payload) into ids,pay from l join shapes.apart t on t.id=l.id; commit; exit when ids is null;
 with d as (delete from shapes.apart_lease l using unnest(ids) n(id) where l.id=n.id and l.token=1 and l.phase=3 returning l.*)
 insert into shapes.apart_end select id,5,9,5,token,trouble,1,failures,'\x00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff',null,'null' from d; commit;
 end loop; end $$;
