// Keeps a page true to what the server tells. Everything is put in as text, never as markup.
"use strict";
(() => {
  const $ = (selector, of = document) => of.querySelector(selector);
  const put = (element, text) => { if (element && element.textContent !== text) element.textContent = text; };

  const bytes = (n) => {
    if (n < 1024) return n + " B";
    let i = -1;
    do { n /= 1024; i++; } while (n >= 1024 && i < 5);
    return n.toFixed(1) + " " + "KMGTPE"[i] + "iB";
  };
  const rate = (n) => n > 0 ? (n / 1e6).toFixed(1) + " MB/s" : "";
  const over = (state) => state === "done" || state === "failed" || state === "canceled";
  const planOver = (state) => state === "ended" || state === "failed";
  const readable = (name) => name.replace(/:/, " ").replace(/\//, " ");

  // Questions before what cannot be undone.
  document.addEventListener("submit", (e) => {
    const ask = e.submitter && e.submitter.dataset.ask;
    if (ask && !confirm(ask)) e.preventDefault();
  });

  const live = $("[data-live]");
  if (!live) return;
  const plan = live.dataset.live === "plan" ? live.dataset.plan : "";
  const rows = new Map();
  for (const row of document.querySelectorAll("#vms tr[data-vm]")) rows.set(row.dataset.vm, row);

  const why = (vm) => {
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
    put($(".state", row), vm.state);
    put($(".worker", row), vm.worker || "");
    if (news || "reason" in vm || vm.granted) put($(".why", row), why(vm));
    if (over(vm.state)) put($(".rate", row), "");
    if (over(vm.state)) $("progress", row).value = vm.state === "done" ? 100 : 0;
    if (vm.progress) showProgress(vm.progress);
  };
  const showProgress = (p) => {
    const row = p.plan === plan && rows.get(p.vm);
    if (!row || over(row.dataset.state)) return;
    $("progress", row).value = p.total > 0 ? Math.min(100, p.done * 100 / p.total) : 0;
    put($(".done", row), bytes(p.done) + " of " + bytes(p.total) + (p.read ? ", " + bytes(p.read) + " read" : ""));
    const silent = p.silent && row.dataset.state === "running" && "granted" in row.dataset;
    put($(".rate", row), silent ? "no progress since " + p.at.slice(11, 19) + " UTC" : rate(p.rate));
  };

  const showPlan = (p) => {
    const done = (p.counts || {}).done || 0;
    const all = Object.values(p.counts || {}).reduce((sum, n) => sum + n, 0);
    const at = plan ? (p.name === plan && live) : [...document.querySelectorAll("tr[data-plan]")].find((row) => row.dataset.plan === p.name);
    if (!at) { if (!plan && p.state) reload(); return; }
    if (plan && String(!planOver(p.state)) !== live.dataset.open) reload(); // the server writes the buttons
    put($(".state", at), p.state);
    const bar = $("progress", at);
    bar.max = all || 1; bar.value = done;
    put($("span.done", at), done + " of " + all + " done");
    put($(".failed", at), String((p.counts || {}).failed || 0));
    put($(".command", at), p.command || "");
    for (const tab of at.querySelectorAll("nav a")) put($(".count", tab), String(tab.dataset.state ? (p.counts || {})[tab.dataset.state] || 0 : all));
  };
  const showWorkers = (workers) => {
    for (const w of workers) {
      const row = [...document.querySelectorAll("tr[data-worker]")].find((r) => r.dataset.worker === w.name);
      if (row) put($(".state", row), !w.alive ? "gone" : w.drains ? "drains" : "alive"); else if (!plan) reload();
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
    put($("#bottleneck"), f.bottleneck || "nothing moves, and nothing waits");
    put($("#moving"), String(f.transfers));
    put($("#rate"), rate(f.rate) || "0 MB/s");
    put($("#waiting"), String(f.waiting));
    for (const [id, of] of [["#hosts", f.hosts], ["#others", f.otherResources]]) { const table = $(id); if (table) showResources(table, of); }
  };

  // A new plan or worker is a new row: the server writes those.
  let reloading = false;
  const reload = () => { if (!reloading) { reloading = true; setTimeout(() => location.reload(), 1000); } };

  // Why VMs wait is no event: there may be ten thousand. Those that are shown are asked for.
  const refresh = async () => {
    if (document.hidden || ![...rows.values()].some((row) => !over(row.dataset.state))) return;
    const answer = await fetch("/v1/plans/" + encodeURIComponent(plan) + "/vms?limit=100" + (live.dataset.query ? "&" + live.dataset.query : ""));
    if (answer.status === 401) { location.href = "/login"; return; }
    if (answer.ok) for (const vm of (await answer.json()).items) showVM({ why: "", ...vm });
  };
  if (plan) setInterval(() => refresh().catch(() => {}), 5000);

  const events = new EventSource("/v1/events" + (plan ? "?plan=" + encodeURIComponent(plan) : ""));
  const on = (name, show) => events.addEventListener(name, (e) => show(JSON.parse(e.data)));
  on("hello", () => { put($("#link"), ""); document.documentElement.dataset.live = "yes"; });
  on("trouble", (t) => put($("#link"), t.text));
  on("changes", (c) => { if ((c.dropped || []).length) location.href = "/"; (c.plans || []).forEach((p) => { if (p.counts) showPlan(p); }); (c.vms || []).forEach(showVM); showWorkers(c.workers || []); });
  on("workers", showWorkers);
  on("plans", (plans) => plans.forEach(showPlan));
  on("progress", (all) => all.forEach(showProgress));
  on("fleet", showFleet);
  events.onerror = () => put($("#link"), "not connected; trying again");
})();
