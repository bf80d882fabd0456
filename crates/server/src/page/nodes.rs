//! Nodes, pools and workers: what runs where, with its process; recycle, resize and drain.

use maud::{Markup, html};
use ostler_ops::overview::{Overview, gone_workers};
use ostler_wire::system::{NodeView, WorkerView};

use super::layout::{NODES_CHANGE, PageContext, PageView};
use super::overview::task_address;
use super::parts::button::{ActionButton, command, menu};
use super::parts::state::badge;
use super::parts::{bytes, line, seconds, short, time};
use crate::answer::{Answer, RequestError};
use crate::call::ApiCall;

/// Workers in the table.
const MAX_SHOWN: usize = 500;
/// Workers that are gone.
const MAX_GONE: usize = 20;

pub(crate) async fn show(call: ApiCall) -> Result<Answer, RequestError> {
    let page = PageContext::new(&call, PageView::Nodes, "nodes");
    let seen = Overview::take(call.store()).await?;
    let (nodes, workers) = (seen.nodes(), seen.workers(page.now));
    let gone = gone_workers(call.store()).await?;
    let main = html! {
        h1 { "Nodes and workers" }
        @if nodes.is_empty() { p class="quiet" { "No node is running. To start one: " (command("ostler up")) } }
        @for node in &nodes { (one(&page, node, &workers)) }
        @if workers.len() > MAX_SHOWN { p class="quiet" { "The first " (MAX_SHOWN) " of " (workers.len()) " workers." } }
        @if !gone.is_empty() {
            section id="gone" {
                h2 { "Workers that are gone" }
                table class="cards" {
                    thead { tr { th { "Worker" } th { "Pool" } th { "Node" } th { "End" } th class="n" { "Done" } th class="n" { "Failed" } th { "Gone at" } } }
                    tbody { @for worker in gone.iter().take(MAX_GONE) { tr data-key=(worker.id) {
                        td data-label="Worker" { (line(&worker.name)) @if let Some(pid) = worker.pid { span class="quiet" { " pid " (pid) } } }
                        td data-label="Pool" { (line(&worker.pool)) }
                        td data-label="Node" { (line(&worker.node_name)) }
                        td data-label="End" { (badge(worker.end)) }
                        td class="n" data-label="Done" { (worker.done) }
                        td class="n" data-label="Failed" { (worker.failed) }
                        td data-label="Gone at" { (time::at(worker.gone_at)) }
                    } } }
                }
            }
        }
    };
    Ok(page.page("Nodes", NODES_CHANGE, &main))
}

fn one(page: &PageContext, node: &NodeView, workers: &[WorkerView]) -> Markup {
    html! {
        section class="node" data-key=(node.id) {
            h2 { (badge(node.state)) " " (line(&node.name)) " " span class="id" { (short(&node.id)) } }
            p class="quiet" { @if let Some(host) = &node.host { (line(host)) ", " } "pid " (node.pid) ", version " (line(&node.version)) ", up since " (time::at(node.joined_at)) }
            (menu(page, &node.id, &[
                ActionButton::new("nodes.drain", "Drain", &[("p:node", &node.id)]),
                ActionButton::new("nodes.resume", "Take the drain back", &[("p:node", &node.id)]),
            ]))
            @for pool in &node.pools {
                div class="pool" data-key=(pool.name) {
                    h3 { "Pool " (line(&pool.name)) span class="quiet" { " " (pool.workers.busy) " busy, " (pool.workers.idle) " idle, " (pool.workers.total) " in all" } }
                    (pool_actions(page, node, &pool.name, pool.workers.total))
                    table class="cards" {
                        thead { tr { th { "State" } th { "Worker" } th class="n" { "Pid" } th class="n" { "Memory" } th class="n" { "Up" } th class="n" { "Done" } th class="n" { "Failed" } th { "Task" } th class="n" { "Elapsed" } th { "Last seen" } th { span class="hidden" { "Actions" } } } }
                        tbody { @for worker in workers.iter().filter(|worker| worker.node == node.id && worker.pool == pool.name).take(MAX_SHOWN) { (worker_row(page, worker)) } }
                    }
                }
            }
        }
    }
}

fn pool_actions(page: &PageContext, node: &NodeView, pool: &str, workers: u64) -> Markup {
    if !page.may_change() {
        return html! {};
    }
    let count = workers.max(1).to_string();
    let resize = ActionButton::new("pools.resize", "Resize", &[("p:pool", pool)]);
    html! {
        details class="menu" data-key=(format!("pool-{}-{pool}", node.id)) {
            summary { "Actions" }
            div {
                (ActionButton::new("pools.recycle", "Recycle one", &[("p:pool", pool)]).show(page))
                (ActionButton::new("pools.recycle", "Recycle all", &[("p:pool", pool), ("t:all", "yes")]).show(page))
                (resize.show_with(page, &html! {
                    label { "from " input type="number" name="n:min" min="0" max="10000" value=(count) required; }
                    label { " to " input type="number" name="n:max" min="1" max="10000" value=(count) required; }
                }))
                (ActionButton::new("queues.pause", "Pause its queue", &[("p:queue", pool)]).show(page))
                (ActionButton::new("queues.resume", "Resume its queue", &[("p:queue", pool)]).show(page))
            }
        }
    }
}

fn worker_row(page: &PageContext, worker: &WorkerView) -> Markup {
    html! {
        tr data-key=(worker.id) {
            td data-label="State" { (badge(worker.state)) }
            td data-label="Worker" { (line(&worker.name)) }
            td class="n" data-label="Pid" { @match worker.pid { Some(pid) => (pid), None => span class="quiet" { "–" } } }
            td class="n" data-label="Memory" { @match worker.memory_bytes { Some(memory) => (bytes(memory)), None => span class="quiet" { "–" } } }
            td class="n" data-label="Up" { (seconds(worker.uptime_s)) }
            td class="n" data-label="Done" { (worker.done) }
            td class="n" data-label="Failed" { (worker.failed) }
            td data-label="Task" { @if let Some(task) = &worker.task { a class="id" href=(page.link(&task_address(task))) { (short(task)) } @if worker.tasks > 1 { " +" (worker.tasks - 1) } } }
            td class="n" data-label="Elapsed" { @match worker.elapsed_s { Some(elapsed) => (seconds(elapsed)), None => span class="quiet" { "–" } } }
            td data-label="Last seen" { (time::at(worker.last_seen)) }
            td { (menu(page, &worker.id, &[ActionButton::new("workers.recycle", "Recycle", &[("p:worker", &worker.id)])])) }
        }
    }
}
