package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/decamp/decamp/internal/fleetdb"
	"github.com/decamp/decamp/internal/lab/postgres"
)

func writeCredential(path string) error { return os.WriteFile(path, []byte(whsec), 0o440) }

// nextEvents waits for n requests, and returns the kind, plan and VM of each event in sorted order.
func (h *hook) nextEvents(n int) (all []string) {
	h.t.Helper()
	for range n {
		_, body := h.next()
		var e Event
		must(h.t, json.Unmarshal([]byte(body), &e))
		all = append(all, string(e.Kind)+" "+e.Plan+" "+e.VM)
	}
	slices.Sort(all)
	return all
}

// Failures, ends of plans, due cutovers and outages are sent to the receivers that select them.
func TestEventsReachSubscribedReceivers(t *testing.T) {
	d := openFleet(t, sqliteURL(t))
	all, waves := newHook(t), newHook(t)
	startNotifier(t, d, loadReceivers(t, fmt.Sprintf("version: 1\nreceivers:\n  all: {webhook: %s}\n  waves: {webhook: %s, plans: [wave-*], events: [plan-done, plan-failed]}\n", all.config(t), waves.config(t))), "a")
	ctx := t.Context()
	warm := func(ref string) fleetdb.VM {
		return fleetdb.VM{Key: fleetdb.Key{VM: ref}, Name: "guest-" + ref, Warm: true}
	}
	scheduled := warm("vm-3")
	scheduled.Spec = json.RawMessage(`{"Warm": {"Cutover": {"Window": true}}}`)
	addPlan(t, d, "wave-1", failedVM("vm-1", "web", "VM web does not exist"), warm("vm-2"), scheduled)
	if got := all.nextEvents(1); got[0] != "vm-failed wave-1 web" {
		t.Fatalf("received %q", got)
	}

	worker, err := d.Workers.Join(ctx, fleetdb.Worker{Name: "w1", VMs: 9, Offers: map[string]string{"/srv/vm": "s"}}, time.Hour)
	must(t, err)
	lease, err := d.Leases.Acquire(ctx, "scheduler", "s", time.Hour)
	must(t, err)
	granted, err := d.Scheduling.Grant(ctx, lease, []fleetdb.Granted{{Key: fleetdb.Key{Plan: "wave-1", VM: "vm-2"}, Worker: "w1"}, {Key: fleetdb.Key{Plan: "wave-1", VM: "vm-3"}, Worker: "w1"}})
	must(t, err)
	for _, g := range granted {
		c := fleetdb.Claim{Key: g.Key, Worker: "w1", Epoch: g.Epoch}
		must(t, d.Claims.Begin(ctx, c, nil))
		must(t, d.Progress.Report(ctx, worker, []fleetdb.Progress{{Key: g.Key, Outage: 42 * time.Second}}, nil))
		must(t, d.Claims.SetStep(ctx, c, "wait", ""))
		must(t, d.Claims.SetStep(ctx, c, "round", ""))
		must(t, d.Claims.SetStep(ctx, c, "wait", "")) // the same event again
	}
	if got := all.nextEvents(1); got[0] != "cutover-due wave-1 guest-vm-2" {
		t.Fatalf("received %q", got)
	}

	for i, g := range granted {
		o := fleetdb.Outage{Began: time.Now(), Took: time.Minute, Boot: 5 * time.Second, Limit: time.Minute}
		if i == 1 {
			o.Limit = time.Hour // not exceeded
		}
		doc, err := json.Marshal(o)
		must(t, err)
		must(t, d.Records.Put(ctx, fleetdb.OutageOfVM, g.Key.String(), doc))
		must(t, d.Claims.Finish(ctx, fleetdb.Claim{Key: g.Key, Worker: "w1", Epoch: g.Epoch}, fleetdb.End{State: fleetdb.Done}))
	}
	must(t, d.Plans.SetState(ctx, "wave-1", fleetdb.PlanEnded, nil))
	if got := all.nextEvents(2); !slices.Equal(got, []string{"outage-overrun wave-1 guest-vm-2", "plan-failed wave-1 "}) {
		t.Fatalf("received %q", got)
	}
	addPlan(t, d, "wave-2")
	must(t, d.Plans.SetState(ctx, "wave-2", fleetdb.PlanListing, &fleetdb.Failure{Kind: "denied", Text: "wrong password"}))
	addPlan(t, d, "other")
	must(t, d.Plans.SetState(ctx, "other", fleetdb.PlanEnded, nil))
	if got := all.nextEvents(2); !slices.Equal(got, []string{"plan-done other ", "plan-failed wave-2 "}) {
		t.Fatalf("received %q", got)
	}
	if got := waves.nextEvents(2); !slices.Equal(got, []string{"plan-failed wave-1 ", "plan-failed wave-2 "}) {
		t.Fatalf("received %q", got)
	}
	waitFor(t, "all notifications are recorded as delivered", func() bool {
		return count(t, d, "all", fleetdb.Delivered) == 6 && count(t, d, "waves", fleetdb.Delivered) == 2
	})
	if len(all.received)+len(waves.received) > 0 {
		t.Error("further requests were received")
	}
}

// A VM whose rounds follow each other without a wait is due as soon as its outage is estimated.
func TestCutoverIsDueDuringRounds(t *testing.T) {
	d := openFleet(t, sqliteURL(t))
	h := newHook(t)
	startNotifier(t, d, loadReceivers(t, "version: 1\nreceivers: {ops: {webhook: "+h.config(t)+"}}"), "a")
	ctx := t.Context()
	first, second := fleetdb.Key{Plan: "wave", VM: "vm-1"}, fleetdb.Key{Plan: "wave", VM: "vm-2"}
	addPlan(t, d, "wave", fleetdb.VM{Key: fleetdb.Key{VM: "vm-1"}, Name: "busy", Warm: true}, fleetdb.VM{Key: fleetdb.Key{VM: "vm-2"}, Name: "idle", Warm: true})
	worker, err := d.Workers.Join(ctx, fleetdb.Worker{Name: "w1", VMs: 9, Offers: map[string]string{"/srv/vm": "s"}}, time.Hour)
	must(t, err)
	lease, err := d.Leases.Acquire(ctx, "scheduler", "s", time.Hour)
	must(t, err)
	granted, err := d.Scheduling.Grant(ctx, lease, []fleetdb.Granted{{Key: first, Worker: "w1"}, {Key: second, Worker: "w1"}})
	must(t, err)
	claims := map[fleetdb.Key]fleetdb.Claim{}
	for _, g := range granted {
		claims[g.Key] = fleetdb.Claim{Key: g.Key, Worker: "w1", Epoch: g.Epoch}
		must(t, d.Claims.Begin(ctx, claims[g.Key], nil))
	}
	must(t, d.Claims.SetStep(ctx, claims[first], "round", ""))
	must(t, d.Claims.SetStep(ctx, claims[second], "wait", ""))
	if got := h.nextEvents(1); got[0] != "cutover-due wave idle" {
		t.Fatalf("received %q", got)
	}
	must(t, d.Progress.Report(ctx, worker, []fleetdb.Progress{{Key: first, Outage: 42 * time.Second}}, nil))
	must(t, d.Claims.SetStep(ctx, claims[first], "snapshot", ""))
	if got := h.nextEvents(1); got[0] != "cutover-due wave busy" {
		t.Fatalf("received %q", got)
	}
}

// A receiver that fails gets the notification later with the same ID. The others are not delayed.
func TestFailedAttemptsAreRepeated(t *testing.T) {
	d := openFleet(t, sqliteURL(t))
	flaky, good := newHook(t, 500, 503, 429, 404, 302), newHook(t)
	startNotifier(t, d, loadReceivers(t, fmt.Sprintf("version: 1\nreceivers:\n  flaky: {webhook: %s}\n  good: {webhook: %s}\n", flaky.config(t), good.config(t))), "a")
	addPlan(t, d, "wave", failedVM("vm-1", "web", "gone"))
	req, _ := good.next()
	again, _ := flaky.next()
	if again.Header.Get("Webhook-Id") != req.Header.Get("Webhook-Id") {
		t.Errorf("IDs %q and %q", again.Header.Get("Webhook-Id"), req.Header.Get("Webhook-Id"))
	}
	waitFor(t, "all notifications are delivered", func() bool { return count(t, d, "flaky", fleetdb.Delivered) == 1 })
}

// The queue survives a restart, and nothing is sent twice.
func TestTheQueueSurvivesARestart(t *testing.T) {
	d := openFleet(t, sqliteURL(t))
	h := newHook(t)
	config := h.config(t)
	down := loadReceivers(t, "version: 1\nreceivers: {ops: {webhook: "+strings.Replace(config, h.URL, "https://127.0.0.1:1", 1)+"}}")
	stop := startNotifier(t, d, down, "a")
	addPlan(t, d, "wave", failedVM("vm-1", "web", "gone"), failedVM("vm-2", "db", "gone"))
	waitFor(t, "an attempt has failed", func() bool {
		counts, err := d.Notifications.Counts(t.Context())
		must(t, err)
		return len(counts) == 1 && counts[0].Count == 2 && counts[0].Failure != ""
	})
	stop()
	addPlan(t, d, "while-stopped", failedVM("vm-3", "mail", "gone"))
	up := loadReceivers(t, "version: 1\nreceivers: {ops: {webhook: "+config+"}}")
	stop = startNotifier(t, d, up, "b")
	if got := h.nextEvents(3); !slices.Equal(got, []string{"vm-failed wave db", "vm-failed wave web", "vm-failed while-stopped mail"}) {
		t.Errorf("received %q", got)
	}
	waitFor(t, "all notifications are delivered", func() bool { return count(t, d, "ops", fleetdb.Delivered) == 3 })
	stop()
	startNotifier(t, d, up, "c")
	addPlan(t, d, "last", failedVM("vm-4", "dns", "gone"))
	if got := h.nextEvents(1); got[0] != "vm-failed last dns" {
		t.Errorf("received %q", got)
	}
}

// A delivery that has begun completes after the notifier was stopped, so that the next one does not repeat it.
func TestDeliveryCompletesAfterTheStop(t *testing.T) {
	d := openFleet(t, sqliteURL(t))
	h := newHook(t)
	begun, respond := make(chan bool), make(chan bool)
	h.before = func() { begun <- true; <-respond }
	n := New(d, loadReceivers(t, "version: 1\nreceivers: {ops: {webhook: "+h.config(t)+"}}"), "a", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { n.Run(ctx) })
	addPlan(t, d, "wave", failedVM("vm-1", "web", "gone"))
	<-begun
	cancel()
	close(respond)
	running.Wait()
	if len(h.received) != 1 || count(t, d, "ops", fleetdb.Delivered) != 1 {
		t.Errorf("%d notifications received and %d pending, want 1 and 0", len(h.received), count(t, d, "ops", fleetdb.Pending))
	}
}

// A notification that the receiver never accepts is abandoned after the configured time. The audit trail records that.
func TestUndeliverableNotificationsAreAbandoned(t *testing.T) {
	var moved atomic.Int64
	d, err := fleetdb.Open(t.Context(), fleetdb.Config{URL: sqliteURL(t), Now: func() time.Time { return time.Now().Add(time.Duration(moved.Load())) }})
	must(t, err)
	defer d.Close()
	h := newHook(t, slices.Repeat([]int{500}, 100_000)...)
	defer startNotifier(t, d, loadReceivers(t, "version: 1\nreceivers: {ops: {webhook: "+h.config(t)+", giveUpAfter: 2h}}"), "a")()
	addPlan(t, d, "wave", failedVM("vm-1", "web", "gone"))
	waitFor(t, "an attempt has failed", func() bool {
		counts, err := d.Notifications.Counts(t.Context())
		must(t, err)
		return len(counts) == 1 && counts[0].Failure == "the receiver returned HTTP 500"
	})
	moved.Store(int64(3 * time.Hour))
	waitFor(t, "the notification is abandoned", func() bool { return count(t, d, "ops", fleetdb.Abandoned) == 1 })
	waitFor(t, "the audit trail has the failure", func() bool {
		trail, err := d.Audit.List(t.Context(), 0, 9)
		must(t, err)
		return len(trail) == 1 && trail[0].Action == "notify ops" && trail[0].On == "vm-failed wave" && strings.Contains(trail[0].Err, "HTTP 500")
	})
}

// Two servers on one database send each notification once.
func TestTwoServersSendOnce(t *testing.T) {
	url := postgres.Start(t).URL()
	h := newHook(t)
	config := "version: 1\nreceivers: {ops: {webhook: " + h.config(t) + "}}"
	first, second := openFleet(t, url), openFleet(t, url)
	stopFirst := startNotifier(t, first, loadReceivers(t, config), "a")
	startNotifier(t, second, loadReceivers(t, config), "b")
	var vms []fleetdb.VM
	for i := range 50 {
		vms = append(vms, failedVM(fmt.Sprintf("vm-%d", i), fmt.Sprintf("guest%d", i), "gone"))
	}
	addPlan(t, first, "wave", vms...)
	if got := slices.Compact(h.nextEvents(50)); len(got) != 50 {
		t.Errorf("%d different events, want 50", len(got))
	}
	waitFor(t, "all notifications are delivered", func() bool { return count(t, second, "ops", fleetdb.Delivered) == 50 })
	stopFirst() // the second server takes over
	addPlan(t, second, "next", failedVM("vm-1", "web", "gone"))
	if got := h.nextEvents(1); got[0] != "vm-failed next web" {
		t.Errorf("received %q", got)
	}
	if len(h.received) > 0 {
		t.Error("a notification was sent twice")
	}
}

// Flush sends all pending notifications at the end of a command, and does not wait for a receiver that is down.
func TestFlushSendsPendingNotifications(t *testing.T) {
	d := openFleet(t, sqliteURL(t))
	h, down := newHook(t), newHook(t)
	downConfig := down.config(t)
	down.Close()
	n := New(d, loadReceivers(t, fmt.Sprintf("version: 1\nreceivers:\n  down: {webhook: %s}\n  ops: {webhook: %s}\n", downConfig, h.config(t))), "a", slog.New(slog.DiscardHandler))
	addPlan(t, d, "wave", failedVM("vm-1", "web", "gone"), failedVM("vm-2", "db", "gone"))
	n.Flush(t.Context())
	if len(h.received) != 2 || count(t, d, "ops", fleetdb.Delivered) != 2 || count(t, d, "down", fleetdb.Pending) != 2 {
		t.Errorf("%d notifications received and %d pending, want 2 each", len(h.received), count(t, d, "down", fleetdb.Pending))
	}
}

func TestOutageOverrunThresholds(t *testing.T) {
	for _, c := range []struct {
		took, boot, estimate, limit time.Duration
		want                        bool
	}{
		{50 * time.Second, 10 * time.Second, 0, time.Minute, false},
		{50 * time.Second, 11 * time.Second, 0, time.Minute, true},
		{time.Hour, 0, time.Minute, 2 * time.Hour, false}, // the limit counts, not the estimate
		{time.Hour, 0, 0, 0, false},
		{15 * time.Second, 0, 5 * time.Second, 0, false}, // within 10 s
		{16 * time.Second, 0, 5 * time.Second, 0, true},
		{90 * time.Second, 0, time.Minute, 0, false}, // within half
		{91 * time.Second, 0, time.Minute, 0, true},
	} {
		if got := isOverrun(fleetdb.Outage{Took: c.took, Boot: c.boot, Estimate: c.estimate, Limit: c.limit}); got != c.want {
			t.Errorf("%+v: overrun is %v", c, got)
		}
	}
}

func TestRetryPausesGrowToLimit(t *testing.T) {
	for failures, longest := range map[int]time.Duration{1: 5 * time.Second, 2: 10 * time.Second, 7: 320 * time.Second, 8: 640 * time.Second, 9: 15 * time.Minute, 5000: 15 * time.Minute} {
		for range 100 {
			if p := defaultPauses.after(failures, defaultPauses.longest); p < longest/2 || p > longest {
				t.Fatalf("pause after %d failures is %v, want %v to %v", failures, p, longest/2, longest)
			}
		}
	}
}
