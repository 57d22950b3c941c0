package client

import (
	"bytes"
	"strings"
	"testing"
)

func readAll(t *testing.T, text string) (all []event) {
	t.Helper()
	err := readEvents(strings.NewReader(text), func() {}, func(e event) error {
		all = append(all, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestReadEvents(t *testing.T) {
	all := readAll(t, "retry: 2000\n\n: comment\n\nevent: changes\nid: 7\ndata: {\"rev\":7}\n\ndata:one\ndata: two\nnonsense\nid: -3\n\nevent: cut\ndata: off")
	if len(all) != 2 || all[0].name != "changes" || all[0].id != 7 || string(all[0].data) != `{"rev":7}` {
		t.Fatalf("got events %+v", all)
	}
	if all[1].name != "" || all[1].id != 0 || string(all[1].data) != "one\ntwo" {
		t.Errorf("got second event %+v", all[1])
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("event: changes\nid: 7\ndata: {\"rev\":7}\n\n"))
	f.Add([]byte("data\n\n"))
	f.Add([]byte(":\r\n\r\nid: 99999999999999999999\ndata: \n\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		count := 0
		err := readEvents(bytes.NewReader(text), func() {}, func(e event) error {
			count++
			if e.data == nil || e.id < 0 || len(e.data) > len(text) {
				t.Errorf("got event %+v of %q", e, text)
			}
			return nil
		})
		if err != nil || count > bytes.Count(text, []byte("\n")) {
			t.Errorf("%d events of %q, %v", count, text, err)
		}
	})
}
