package admission

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// A snapshot that is encoded as JSON is decoded without a loss.
func TestSnapshotIsReadBack(t *testing.T) {
	s := Snapshot{At: time.Unix(7, 0).UTC(), Waiting: []Waiting{{Plan: "p", VM: "v", Reason: "s", Position: 2}}, Breakers: []Breaker{{Object: "host esx1", Reason: "rests"}}}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var back Snapshot
	if err := json.Unmarshal(text, &back); err != nil || fmt.Sprint(back) != fmt.Sprint(s) {
		t.Errorf("got %+v, %v; want %+v", back, err, s)
	}
}
