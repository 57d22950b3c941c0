package sched_test

import (
	"fmt"
	"time"

	"github.com/decamp/decamp/internal/sched"
)

// The life of a run: limits, a request, a grant and a release.
func Example() {
	now := time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)
	s := sched.New(sched.Options{})
	s.SetCapacity("host:esx3/vms", 2)
	s.SetCapacity("host:esx3/nfc", 48<<20)
	for i := range 4 {
		err := s.Submit(now, sched.Request{
			Run: fmt.Sprint("vm", i), Plan: "night",
			Expected: time.Duration(10*(i+1)) * time.Minute,
			Needs:    []sched.Need{{Resource: "host:esx3/vms", Weight: 1}, {Resource: "host:esx3/nfc", Weight: 8 << 20}},
		})
		if err != nil {
			fmt.Println(err)
		}
	}
	for _, g := range s.Decide(now) {
		fmt.Println("start", g.Run, "until about", g.Until.Format("15:04"))
	}
	why := s.Snapshot().Waiting[0]
	fmt.Println(why.Run+":", why.Text(now))

	now = now.Add(26 * time.Minute)
	s.Release("vm2") // its transfer has succeeded or failed
	for _, g := range s.Decide(now) {
		fmt.Println("start", g.Run)
	}
	// Output:
	// start vm3 until about 22:40
	// start vm2 until about 22:30
	// vm0: host esx3: 2 of 2 vms; next in about 30 min
	// start vm1
}

// After a crash, the caller sets the limits, restores the grants from its journal, and submits the waiting runs.
func ExampleScheduler_Restore() {
	now := time.Date(2026, 11, 20, 22, 0, 0, 0, time.UTC)
	s := sched.New(sched.Options{})
	s.SetCapacity("worker:w1/runs", 1)
	needs := []sched.Need{{Resource: "worker:w1/runs", Weight: 1}}
	s.Restore(sched.RestoredGrant{Run: "vm1", Plan: "night", Needs: needs, Since: now, Until: now.Add(time.Hour)})
	s.Submit(now, sched.Request{Run: "vm1", Plan: "night", Needs: needs}, sched.Request{Run: "vm2", Plan: "night", Needs: needs})
	fmt.Println(len(s.Decide(now)), "begin; vm1 goes on:", s.HasGrant("vm1"))
	// Output: 0 begin; vm1 goes on: true
}

// A run may begin only at night. The caller sets a timer for the time that NextChange returns.
func ExampleScheduler_NextChange() {
	now := time.Date(2026, 11, 20, 15, 0, 0, 0, time.UTC)
	s := sched.New(sched.Options{})
	s.SetCapacity("host:esx3/vms", 20)
	night := sched.Window{From: now.Add(7 * time.Hour), To: now.Add(15 * time.Hour)}
	s.Submit(now, sched.Request{
		Run: "vm1", Plan: "night", Windows: []sched.Window{night},
		Needs: []sched.Need{{Resource: "host:esx3/vms", Weight: 1}},
	})
	fmt.Println(len(s.Decide(now)), "begin")
	wake, _ := s.NextChange()
	fmt.Println(wake.Format("15:04"), len(s.Decide(wake)), "begins")
	// Output:
	// 0 begin
	// 22:00 1 begins
}
