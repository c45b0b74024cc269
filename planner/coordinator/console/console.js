// The console: asks for /api/cells every two seconds and draws the answer. All text goes into the page as text.
'use strict';

const PERIOD_MS = 2000;
const COPIES_SHOWN = 200;  // those that need a person first
const RATE_MS = 8000;    // servers report their totals every second or less often
const CELLS_MAX = 2048;  // per table; with more shards a cell stands for several neighbours
const CELL = 16;

let now = null;      // the newest document
let before = null;   // the one that rates are counted from, up to RATE_MS older
let history = [];    // the documents since then
let colour = 'server';
let chosen = null;   // 'table/index' of the first shard of a cell
let eventSeen = 0;
let rates = new Map();     // rows per second, by 'table/index'
let shardsOf = new Map();  // of a table, in the order of their ranges

const byId = id => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const svg = ['svg', 'rect', 'title'].includes(tag);
  const node = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// --- numbers for people

function bytes(n) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let unit = 0;
  for (; n >= 1024 && unit < units.length - 1; ++unit) n /= 1024;
  return `${unit === 0 || n >= 100 ? Math.round(n) : n.toFixed(1)} ${units[unit]}`;
}

function count(n) {
  for (const [limit, unit] of [[1e9, 'G'], [1e6, 'M'], [1e4, 'k']]) {
    if (n >= limit) return `${(n / (unit === 'k' ? 1e3 : limit)).toFixed(1)} ${unit}`;
  }
  return String(Math.round(n));
}

function duration(seconds) {
  if (!isFinite(seconds)) return 'unknown';
  if (seconds < 90) return `${Math.ceil(seconds)} s`;
  return seconds < 5400 ? `${Math.ceil(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

// Per second, from two documents; null without a previous value, or after a restart.
function rate(value, previous) {
  const seconds = before === null ? 0 : (now.unix_ms - before.unix_ms) / 1000;
  if (previous === undefined || value < previous || seconds <= 0) return null;
  return (value - previous) / seconds;
}

const perSecond = r => r === null ? 'no rate yet' : `${count(r)}/s`;

function hue(server) {
  const index = now.servers.findIndex(s => s.id === server);
  return index < 0 ? 'hsl(0 0% 50%)' : `hsl(${Math.round(150 + index * 137.5) % 360} 50% ${index % 2 ? 42 : 55}%)`;
}

const serverName = id => (now.servers.find(s => s.id === id) || {name: `server ${id}`}).name;
const tableName = id => (now.tables.find(t => t.id === id) || {name: `table ${id}`}).name;
const names = servers => servers.map(serverName).join(', ');

// --- tables of text

// columns: [heading, kind]; rows: arrays of text or nodes.
function fill(table, columns, rows, none) {
  const head = make('tr', {}, ...columns.map(([text, kind = '']) => make('th', {scope: 'col', class: kind}, text)));
  const body = rows.map(row => make('tr', {}, ...row.map((cell, i) => {
    const kind = columns[i][1] || '';
    return i === 0 ? make('th', {scope: 'row'}, cell) : make('td', {class: kind}, cell);
  })));
  if (rows.length === 0) body.push(make('tr', {}, make('td', {colspan: columns.length, class: 'none'}, none)));
  table.replaceChildren(make('thead', {}, head), make('tbody', {}, ...body));
}

function bar(label, kind, used, limit) {
  const share = limit > 0 ? Math.min(used / limit, 1) : 0;
  const text = limit > 0 ? `${bytes(used)} of ${bytes(limit)}` : bytes(used);
  const line = make('div', {class: 'bar-line'}, make('span', {}, label));
  const drawing = make('svg', {class: 'bar', role: 'img', viewBox: '0 0 96 8', 'aria-label': `${label}: ${text}`},
                       make('rect', {class: 'track', width: 96, height: 8, rx: 2}),
                       make('rect', {class: kind, width: 96 * share, height: 8, rx: 2}));
  line.append(drawing, make('span', {}, text));
  return line;
}

function tiersOf(server) {
  const tiers = make('div');
  if (server.device_bytes_limit > 0) tiers.append(bar('device', 'device', server.device_bytes, server.device_bytes_limit));
  tiers.append(bar('host', 'host', server.host_bytes, server.host_bytes_limit));
  const room = server.free_bytes === null ? 0 : server.spill_bytes + server.free_bytes;
  tiers.append(bar('disk', 'disk', server.spill_bytes, room));
  return tiers;
}

function state(text, kind) {
  return make('span', {class: kind}, text);
}

// --- the sections

function drawSummary() {
  const live = now.servers.filter(s => s.state !== 'down').length;
  const sum = (list, field) => list.reduce((total, item) => total + item[field], 0);
  const shards = sum(now.shards, 'shards');
  const active = shards - sum(now.shards, 'inactive');
  const earlier = before === null ? undefined : before;
  const pulled = rate(sum(now.servers, 'rows_pulled_total'), earlier && sum(earlier.servers, 'rows_pulled_total'));
  const pushed = rate(sum(now.servers, 'rows_pushed_total'), earlier && sum(earlier.servers, 'rows_pushed_total'));
  const behind = now.shards.reduce((most, s) => Math.max(most, s.records_behind || 0), 0);
  const tiles = [
    ['Servers live', `${live} of ${now.servers.length}`], ['Tables', now.tables.length],
    ['Shards active', `${active} of ${shards}`], ['Rows pulled', perSecond(pulled)],
    ['Rows pushed', perSecond(pushed)], ['Moves', now.moves.total], ['Largest lag of a replica', `${count(behind)} records`],
  ];
  byId('summary').replaceChildren(...tiles.map(([name, value]) => make('div', {}, make('dt', {}, name), make('dd', {}, String(value)))));
  byId('where').textContent = `cluster ${now.cluster_id}, coordinator ${now.coordinator}, revision ${now.plan_revision}, rebalancing ${now.rebalancing ? 'on' : 'off'}`;
  const served = now.serving_servers.every(r => r.live) && now.served_tables.every(table => alertOf(table) === '');
  const well = now.serving && live === now.servers.length && active === shards && now.doubts.length === 0 && served;
  const trouble = !now.serving ? `not serving: ${now.trouble}` : well ? 'all well' : 'see below';
  setState(trouble, well ? 'good' : 'bad');
}

function setState(text, kind) {
  if (byId('state').textContent !== text) byId('state').textContent = text;
  byId('state').dataset.state = kind;
}

function drawServers() {
  const previous = new Map((before ? before.servers : []).map(s => [s.id, s]));
  fill(byId('servers'), [['server'], ['state'], ['tiers'], ['primaries', 'number'], ['rows pulled', 'number'],
                         ['rows pushed', 'number'], ['pull p99', 'number'], ['log', 'number'], ['address'], ['domain']],
       now.servers.map(s => {
         const p = previous.get(s.id) || {};
         return [s.name, state(s.state, s.state === 'live' ? 'good' : s.state === 'draining' ? 'warn' : 'bad'), tiersOf(s),
                 s.primaries, perSecond(rate(s.rows_pulled_total, p.rows_pulled_total)),
                 perSecond(rate(s.rows_pushed_total, p.rows_pushed_total)),
                 s.pull_p99_us > 0 ? `${(s.pull_p99_us / 1000).toFixed(1)} ms` : 'none', bytes(s.log_bytes), s.address,
                 s.failure_domain];
       }), 'no server has registered');
}

// Why readers of a table may have to wait or be refused, or nothing.
function alertOf(table) {
  const alerts = Array.from({length: table.parts}, (_, part) => alertOfPart(table, part));
  const part = alerts.findIndex(alert => alert !== '');
  return part < 0 ? '' : table.parts === 1 ? alerts[part] : `part ${part + 1}: ${alerts[part]}`;
}

function alertOfPart(table, part) {
  const answer = table.copies.filter(c => c.part === part && c.state === 'ready');
  if (answer.length === 0) return 'nobody answers';
  if (table.age_ms_max !== null && answer.every(c => c.age_ms > table.age_ms_max)) return 'all copies are too old';
  return answer.length < table.copies_wanted ? `${answer.length} of ${table.copies_wanted} copies answer` : '';
}

function drawServing() {
  byId('serving-section').hidden = now.serving_servers.length === 0 && now.served_tables.length === 0;
  byId('models').textContent = now.models.map(model => `Model ${model.model}: ` +
      (model.current === null ? 'no version is current' : `version ${model.current} is current`) + (model.pinned ? ', pinned' : '') +
      (model.target !== model.current ? `; ${model.target} is being taken up` : '')).join('. ');
  const previous = new Map((before ? before.serving_servers : []).map(r => [r.name, r]));
  fill(byId('serving-servers'), [['serving server'], ['state'], ['memory of rows'], ['rows', 'number'], ['tables ready', 'number'],
                                 ['lookups', 'number'], ['refused', 'number'], ['address'], ['HTTP'], ['domain']],
       now.serving_servers.map(r => {
         const p = previous.get(r.name) || {};
         return [r.name, state(r.live ? 'live' : 'silent', r.live ? 'good' : 'bad'), bar('rows', 'host', r.bytes, r.bytes_limit),
                 count(r.rows), `${r.tables_ready} of ${r.tables}`, perSecond(rate(r.lookups_total, p.lookups_total)),
                 perSecond(rate(r.lookups_refused_total, p.lookups_refused_total)), r.address, r.http_address || 'off',
                 r.failure_domain];
       }), 'no serving server has reported');
  const rows = now.served_tables.flatMap(served => {
    const alert = alertOf(served);
    const name = served.copies_max > served.copies_min
        ? `${served.name} (${served.copies_wanted} of ${served.copies_min} to ${served.copies_max} copies)` : served.name;
    const follow = served.parts_to_follow ? `to be in ${served.parts_to_follow} part(s)` : '';
    const note = c => [alert === '' ? '' : state(alert, 'bad'), follow, c.trouble].filter(n => n !== '');
    const copies = served.copies.length ? served.copies
        : [{server: 'none', state: 'waits for room', part: 0, rows: null, bytes: null, age_ms: null, trouble: '', versions_held: 0, versions_wanted: 0, lookup_rows_per_s: 0}];
    return copies.map(c => ({urgency: alert !== '' ? 0 : c.trouble !== '' || c.state !== 'ready' ? 1 : 2, cells: [
      served.parts > 1 ? `${name}, part ${c.part + 1} of ${served.parts}` : name, served.format, c.server, state(c.state, c.state === 'ready' ? 'good' : c.state === 'loading' ? 'warn' : 'bad'),
      c.rows === null ? '' : count(c.rows), c.bytes === null ? '' : bytes(c.bytes), perSecond(c.lookup_rows_per_s),
      c.age_ms === null ? '' : c.age_ms < 1000 ? `${c.age_ms} ms` : `${(c.age_ms / 1000).toFixed(1)} s`,
      c.versions_wanted === 0 ? 'none' : `${c.versions_held} of ${c.versions_wanted}`, make('span', {}, ...note(c).flatMap(n => [n, ' '])),
    ]}));
  }).sort((a, b) => a.urgency - b.urgency).map(row => row.cells);
  const left = rows.length - COPIES_SHOWN;
  byId('copies-left').textContent = left > 0 ? `${count(left)} further copies: hotbed serve status` : '';
  fill(byId('copies'), [['table'], ['format'], ['copy on'], ['state'], ['rows', 'number'], ['bytes', 'number'], ['rows asked', 'number'], ['age', 'number'],
                        ['versions held', 'number'], ['trouble', 'wrap']], rows.slice(0, COPIES_SHOWN), 'no table is served');
}

const keyOf = shard => `${shard.table}/${shard.index}`;

function groupShards() {
  const previous = new Map((before ? before.shards : []).map(s => [keyOf(s), s]));
  rates = new Map();
  shardsOf = new Map(now.tables.map(t => [t.id, []]));
  for (const s of now.shards) {
    // An entry that has other shards than before, since some were cut or joined it, has no rate yet.
    const same = previous.get(keyOf(s));
    const p = same && same.first === s.first && same.limit === s.limit && same.shards === s.shards ? same : {};
    rates.set(keyOf(s), (rate(s.rows_pulled_total, p.rows_pulled_total) || 0) + (rate(s.rows_pushed_total, p.rows_pushed_total) || 0));
    if (shardsOf.has(s.table)) shardsOf.get(s.table).push(s);
  }
  for (const shards of shardsOf.values()) shards.sort((a, b) => a.first - b.first);
}

// Neighbouring shards share a cell where there are too many.
function cellsOf(shards) {
  const per = Math.ceil(shards.length / CELLS_MAX);
  const cells = [];
  for (let i = 0; i < shards.length; i += per) cells.push(shards.slice(i, i + per));
  return cells;
}

const shardsIn = cell => cell.reduce((sum, s) => sum + s.shards, 0);

function describe(cell) {
  const [first, last] = [cell[0], cell[cell.length - 1]];
  const load = cell.reduce((sum, s) => sum + rates.get(keyOf(s)), 0);
  const shards = shardsIn(cell);
  const where = `${tableName(first.table)}/${first.index}${shards > 1 ? ` and ${shards - 1} neighbours` : ''}`;
  const rest = first.members.filter(m => m !== first.primary);
  return `${where}: rows or buckets ${first.first} to ${last.limit - 1}, primary ${serverName(first.primary)}` +
      (rest.length ? `, replicas on ${names(rest)}` : '') + (first.learners.length ? `, transfer to ${names(first.learners)}` : '') +
      `, epoch ${first.epoch}, ${cell.every(s => s.active) ? 'active' : 'waiting for its server'}, ${count(load)} rows/s` +
      (first.records_behind ? `, a replica is ${first.records_behind} records behind` : '');
}

function drawMap() {
  let most = 1;
  for (const r of rates.values()) most = Math.max(most, r);
  const width = Math.max(CELL, byId('map').clientWidth);
  const columns = Math.max(1, Math.floor(width / CELL));
  const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.table : undefined;
  const maps = now.tables.map(table => {
    const shards = shardsOf.get(table.id);
    const cells = cellsOf(shards);
    const rows = Math.ceil(cells.length / columns);
    const drawing = make('svg', {viewBox: `0 0 ${columns * CELL} ${rows * CELL}`, height: rows * CELL, tabindex: 0, role: 'img',
                                 preserveAspectRatio: 'xMinYMin', 'data-table': table.id,
                                 'aria-label': `${table.name}: ${shardsIn(shards)} shards, ${shardsIn(shards) - shards.reduce((sum, s) => sum + s.inactive, 0)} active, on ${names([...new Set(shards.map(s => s.primary))])}`});
    cells.forEach((cell, i) => {
      const load = cell.reduce((sum, s) => Math.max(sum, rates.get(keyOf(s))), 0) / most;
      const waiting = cell.some(s => !s.active);
      const rect = make('rect', {
        x: (i % columns) * CELL, y: Math.floor(i / columns) * CELL, width: CELL - 1, height: CELL - 1, rx: 2,
        class: `cell${waiting ? ' waiting' : ''}${chosen === keyOf(cell[0]) ? ' chosen' : ''}`,
        fill: colour === 'server' ? hue(cell[0].primary) : `hsl(${Math.round(150 - 150 * load)} 60% ${Math.round(70 - 25 * load)}%)`,
      }, make('title', {}, describe(cell)));
      rect.addEventListener('click', () => choose(cell));
      drawing.append(rect);
    });
    drawing.addEventListener('keydown', event => {
      const step = {ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns, Home: -Infinity, End: Infinity}[event.key];
      if (step === undefined || cells.length === 0) return;
      event.preventDefault();
      const at = cells.findIndex(cell => keyOf(cell[0]) === chosen);
      choose(cells[Math.min(Math.max(at < 0 ? 0 : at + step, 0), cells.length - 1)]);
    });
    return make('div', {class: 'table-map'}, make('h3', {}, `${table.name}, ${shardsIn(shards)} shards`), drawing);
  });
  byId('map').replaceChildren(...(maps.length ? maps : [make('p', {class: 'none'}, 'no table yet')]));
  if (focused !== undefined) {
    const again = byId('map').querySelector(`svg[data-table="${CSS.escape(focused)}"]`);
    if (again) again.focus({preventScroll: true});
  }
  const square = fillColour => make('svg', {viewBox: '0 0 12 12', 'aria-hidden': 'true'}, make('rect', {width: 12, height: 12, rx: 2, fill: fillColour}));
  const legend = colour === 'server' ? now.servers.map(s => make('li', {}, square(hue(s.id)), s.name))
      : [make('li', {}, square('hsl(150 60% 70%)'), 'idle'), make('li', {}, square('hsl(0 60% 45%)'), `${count(most)} rows/s`)];
  byId('legend').replaceChildren(...legend);
}

function choose(cell) {
  chosen = keyOf(cell[0]);
  byId('shard').textContent = describe(cell);
  drawMap();
}

function drawMoves() {
  const m = now.moves;
  byId('moves-sum').textContent = m.total === 0 ? `None in progress; ${m.done_total} done since this coordinator started.`
      : `${m.total} in progress or waiting, ${bytes(m.bytes_left)} left at ${bytes(m.bytes_per_s)}/s` +
        (m.paused ? ', paused' : m.bytes_per_s > 0 ? `, about ${duration(m.bytes_left / m.bytes_per_s)} left` : '');
  const previous = new Map((before ? before.moves.list : []).map(move => [keyOf(move), move]));
  fill(byId('moves'), [['shard'], ['to'], ['step'], ['progress'], ['left', 'number'], ['why', 'wrap'], ['waits for', 'wrap']],
       m.list.slice(0, 100).map(move => {
         const speed = rate(move.bytes_copied, (previous.get(keyOf(move)) || {}).bytes_copied);
         const left = move.bytes_total - move.bytes_copied;
         const done = make('progress', {max: Math.max(move.bytes_total, 1), value: move.bytes_copied,
                                        'aria-label': `${bytes(move.bytes_copied)} of ${bytes(move.bytes_total)}`});
         const progress = make('span', {}, done, ` ${bytes(move.bytes_copied)} of ${bytes(move.bytes_total)}`);
         return [`${tableName(move.table)}/${move.index}`, names(move.servers), move.step, progress,
                 speed > 0 ? duration(left / speed) : '', move.reason, move.waits_for];
       }), 'no shard is moving');
}

function drawTables() {
  const load = new Map(now.tables.map(t => [t.id, shardsOf.get(t.id).reduce((sum, s) => sum + rates.get(keyOf(s)), 0)]));
  const ratio = t => t.hits + t.misses > 0 ? `${(100 * t.hits / (t.hits + t.misses)).toFixed(1)} %` : 'none';
  fill(byId('tables'), [['table'], ['rows/s', 'number'], ['in memory, all replicas', 'number'], ['hits', 'number'], ['shards', 'number'],
                        ['ids'], ['dim', 'number'], ['optimizer'], ['durability']],
       [...now.tables].sort((a, b) => load.get(b.id) - load.get(a.id) || a.id - b.id).slice(0, 100).map(t => [
         t.name, count(load.get(t.id)), `${count(t.rows_resident)} rows`, ratio(t), shardsIn(shardsOf.get(t.id)),
         t.ids === 'hashed' ? 'hashed' : `${count(t.rows)} rows`, t.dim, t.optimizer,
         t.replicas > 1 ? `${t.durability} x ${t.replicas}` : t.durability,
       ]), 'no table yet');
}

function drawDoubts() {
  byId('doubts-section').hidden = now.doubts.length === 0;
  fill(byId('doubts'), [['shard'], ['served'], ['since'], ['what is waited for', 'wrap']], now.doubts.map(d => [
    `${tableName(d.table)}/${d.index}`, d.served ? 'yes' : state('no', 'bad'), new Date(d.since_unix_ms).toLocaleTimeString(), d.text,
  ]), 'none');
}

// New events go on top, so that a screen reader says only those.
function drawEvents() {
  const list = byId('events');
  if (now.events.length && now.events[0].number < eventSeen) {
    list.replaceChildren();
    eventSeen = 0;
  }
  for (const event of [...now.events].reverse()) {
    if (event.number <= eventSeen) continue;
    eventSeen = event.number;
    const at = new Date(event.unix_ms);
    list.prepend(make('li', {value: event.number}, make('time', {datetime: at.toISOString()}, at.toLocaleTimeString()),
                      make('b', {}, event.kind.replaceAll('_', ' ')), event.text));
  }
  while (list.children.length > 200) list.lastChild.remove();
}

function draw() {
  groupShards();
  drawSummary();
  drawDoubts();
  drawServers();
  drawServing();
  drawMap();
  drawMoves();
  drawTables();
  drawEvents();
}

// --- the plan, when it is asked for

const milliseconds = ms => ms === null ? 'unknown' : ms >= 10 ? `${Math.round(ms)} ms` : `${ms.toPrecision(2)} ms`;

function drawPlan(plan) {
  byId('plan').hidden = plan.trouble !== '';
  if (plan.trouble !== '') {
    byId('plan-sum').textContent = `No plan: ${plan.trouble}`;
    return;
  }
  byId('plan-sum').textContent = (plan.moves_total === 0 ? 'The placement is good enough as it is.'
      : `${plan.moves_total} moves of ${bytes(plan.move_bytes)}; the slowest server then takes ${milliseconds(plan.slowest_step_ms_after)} per step instead of ${milliseconds(plan.slowest_step_ms_before)}. 'hotbed plan apply' carries them out.`) +
      ` Planned at ${new Date(plan.unix_ms).toLocaleTimeString()}, revision ${plan.plan_revision}.`;
  const picture = byId('plan-picture');
  picture.src = `/api/plan.svg?${plan.unix_ms}`;
  picture.alt = 'Bytes on each server before and after the plan, by table; the table below has the numbers.';
  fill(byId('plan-servers'), [['server'], ['state'], ['bytes', 'number'], ['after', 'number'], ['per step', 'number'], ['after', 'number']],
       plan.servers.map(s => [s.name, state(s.state, s.state === 'live' ? 'good' : s.state === 'draining' ? 'warn' : 'bad'),
                              bytes(s.bytes_before), bytes(s.bytes_after), milliseconds(s.step_ms_before),
                              milliseconds(s.step_ms_after)]), 'no server has registered');
  fill(byId('plan-moves'), [['table'], ['rows or buckets'], ['from'], ['to'], ['bytes', 'number'], ['why', 'wrap']],
       plan.moves.map(m => [m.table, `${m.first} to ${m.limit - 1}`, m.from || 'a server that is gone', m.to, bytes(m.bytes), m.reason]),
       'no moves');
}

byId('plan-ask').addEventListener('click', async () => {
  byId('plan-ask').disabled = true;
  byId('plan-sum').textContent = 'The planner is at work.';
  try {
    const answer = await fetch('/api/plan', {cache: 'no-store'});
    if (!answer.ok) throw new Error(`the coordinator answers ${answer.status}`);
    drawPlan(await answer.json());
  } catch (error) {
    byId('plan-sum').textContent = `No plan: ${error.message}`;
  } finally {
    byId('plan-ask').disabled = false;
  }
});

async function refresh() {
  try {
    if (document.hidden) return;
    const answer = await fetch('/api/cells', {cache: 'no-store'});
    if (!answer.ok) throw new Error(`the coordinator answers ${answer.status}`);
    const document_ = await answer.json();
    history = history.filter(d => d.cluster_id === document_.cluster_id && d.unix_ms > document_.unix_ms - RATE_MS);
    before = history.length > 0 ? history[0] : now;
    now = document_;
    history.push(now);
    draw();
  } catch (error) {
    setState(`no news: ${error.message}`, 'bad');
  } finally {
    setTimeout(refresh, PERIOD_MS);
  }
}

for (const radio of document.querySelectorAll('input[name="colour"]')) {
  radio.addEventListener('change', () => {
    colour = radio.value;
    if (now !== null) drawMap();
  });
}
addEventListener('resize', () => now !== null && drawMap());
refresh();
if (location.hash === '#plan') byId('plan-ask').click();
