// Updates a page with the events of the server. All values are inserted as text, never as markup.
"use strict";
(() => {
  const $ = (selector, of = document) => of.querySelector(selector);
  const setText = (element, text) => { if (element && element.textContent !== text) element.textContent = text; };

  const bytes = (n) => {
    if (n < 1024) return n + " B";
    let i = -1;
    do { n /= 1024; i++; } while (n >= 1024 && i < 5);
    return n.toFixed(1) + " " + "KMGTPE"[i] + "iB";
  };
  const rate = (n) => n > 0 ? (n / 1e6).toFixed(1) + " MB/s" : "";
  const isOver = (state) => state === "done" || state === "failed" || state === "canceled";
  const isPlanOver = (state) => state === "ended" || state === "failed";
  const readable = (name) => name.replace(/:/, " ").replace(/\//, " ");

  // Commands that cannot be undone require a confirmation.
  document.addEventListener("submit", (e) => {
    const ask = e.submitter && e.submitter.dataset.ask;
    if (ask && !confirm(ask)) e.preventDefault();
  });

  const live = $("[data-live]");
  if (!live) return;
  const plan = live.dataset.live === "plan" ? live.dataset.plan : "";
  const rows = new Map();
  for (const row of document.querySelectorAll("#vms tr[data-vm]")) rows.set(row.dataset.vm, row);

  const reasonOf = (vm) => {
    const parts = vm.failure ? [vm.failure.text + (vm.failure.hint ? " – " + vm.failure.hint : "")] : [vm.step, vm.waitReason, vm.reason];
    if (vm.command) parts.push("(command: " + vm.command + ")");
    return parts.filter(Boolean).join(" ");
  };
  const showVM = (vm) => {
    const row = rows.get(vm.vm);
    if (!row || Number(row.dataset.rev || 0) > vm.rev) return;
    const news = row.dataset.rev !== String(vm.rev);
    row.dataset.rev = vm.rev;
    row.dataset.state = vm.state;
    if (vm.granted) row.dataset.granted = ""; else delete row.dataset.granted;
    setText($(".state", row), vm.state);
    setText($(".worker", row), vm.worker || "");
    if (news || "reason" in vm || vm.granted) setText($(".why", row), reasonOf(vm));
    if (isOver(vm.state)) setText($(".rate", row), "");
    if (isOver(vm.state)) $("progress", row).value = vm.state === "done" ? 100 : 0;
    if (vm.progress) showProgress(vm.progress);
  };
  const showProgress = (p) => {
    const row = p.plan === plan && rows.get(p.vm);
    if (!row || isOver(row.dataset.state)) return;
    $("progress", row).value = p.total > 0 ? Math.min(100, p.done * 100 / p.total) : 0;
    setText($(".done", row), bytes(p.done) + " of " + bytes(p.total) + (p.read ? ", " + bytes(p.read) + " read" : ""));
    const silent = p.silent && row.dataset.state === "running" && "granted" in row.dataset;
    setText($(".rate", row), silent ? "no progress since " + p.at.slice(11, 19) + " UTC" : rate(p.rate));
  };

  const showPlan = (p) => {
    const done = (p.counts || {}).done || 0;
    const all = Object.values(p.counts || {}).reduce((sum, n) => sum + n, 0);
    const element = plan ? (p.name === plan && live) : [...document.querySelectorAll("tr[data-plan]")].find((row) => row.dataset.plan === p.name);
    if (!element) { if (!plan && p.state) reload(); return; }
    if (plan && String(!isPlanOver(p.state)) !== live.dataset.open) reload(); // the server renders the buttons
    setText($(".state", element), p.state);
    const bar = $("progress", element);
    bar.max = all || 1; bar.value = done;
    setText($("span.done", element), done + " of " + all + " done");
    setText($(".failed", element), String((p.counts || {}).failed || 0));
    setText($(".command", element), p.command || "");
    for (const tab of element.querySelectorAll("nav a")) setText($(".count", tab), String(tab.dataset.state ? (p.counts || {})[tab.dataset.state] || 0 : all));
  };
  const showWorkers = (workers) => {
    for (const w of workers) {
      const row = [...document.querySelectorAll("tr[data-worker]")].find((r) => r.dataset.worker === w.name);
      if (row) setText($(".state", row), !w.alive ? "gone" : w.drains ? "drains" : "alive"); else if (!plan) reload();
    }
  };

  const showResources = (table, resources) => {
    const body = $("tbody", table);
    if (!body) return;
    body.replaceChildren(...resources.map((r) => {
      const row = document.createElement("tr");
      for (const text of [readable(r.name), r.used + " of " + r.capacity, String(r.waiting)]) {
        row.insertCell().textContent = text;
      }
      return row;
    }));
  };
  const showFleet = (f) => {
    setText($("#bottleneck"), f.bottleneck || "no VM is copied, and none waits");
    setText($("#moving"), String(f.transfers));
    setText($("#rate"), rate(f.rate) || "0 MB/s");
    setText($("#waiting"), String(f.waiting));
    for (const [id, of] of [["#hosts", f.hosts], ["#others", f.otherResources]]) { const table = $(id); if (table) showResources(table, of); }
  };

  // A new plan or worker needs a new row, which the server renders.
  let reloading = false;
  const reload = () => { if (!reloading) { reloading = true; setTimeout(() => location.reload(), 1000); } };

  // Events do not contain the reasons to wait: there may be ten thousand. The page requests those of its VMs.
  const refresh = async () => {
    if (document.hidden || ![...rows.values()].some((row) => !isOver(row.dataset.state))) return;
    const answer = await fetch("/v1/plans/" + encodeURIComponent(plan) + "/vms?limit=100" + (live.dataset.query ? "&" + live.dataset.query : ""));
    if (answer.status === 401) { location.href = "/login"; return; }
    if (answer.ok) for (const vm of (await answer.json()).items) showVM({ reason: "", ...vm });
  };
  if (plan) setInterval(() => refresh().catch(() => {}), 5000);

  const events = new EventSource("/v1/events" + (plan ? "?plan=" + encodeURIComponent(plan) : ""));
  const on = (name, show) => events.addEventListener(name, (e) => show(JSON.parse(e.data)));
  on("hello", () => { setText($("#link"), ""); document.documentElement.dataset.live = "yes"; });
  on("trouble", (t) => setText($("#link"), t.text));
  on("changes", (c) => { if ((c.dropped || []).length) location.href = "/"; (c.plans || []).forEach((p) => { if (p.counts) showPlan(p); }); (c.vms || []).forEach(showVM); showWorkers(c.workers || []); });
  on("workers", showWorkers);
  on("plans", (plans) => plans.forEach(showPlan));
  on("progress", (all) => all.forEach(showProgress));
  on("fleet", showFleet);
  events.onerror = () => setText($("#link"), "not connected; trying again");
})();
