package bench_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/bench"
)

const oneRow = `{"source": "ssd", "destination": "nvme", "nic": "25g", "mtu": 9000, "export": "async", "origin": "us", "seconds": 10, "allocated": 1073741824, "wireMiBs": 102.4}`

func TestRowsAreReadAsListAndAsLines(t *testing.T) {
	https := strings.NewReplacer(`"async"`, `""`, `"ssd"`, `"ssd", "transport": "https", "streams": 4`).Replace(oneRow)
	for _, text := range []string{"[" + oneRow + ",\n" + https + "]", oneRow + "\n" + https + "\n", oneRow + https} {
		rows, err := bench.ReadRows(strings.NewReader(text))
		if err != nil || len(rows) != 2 || rows[1].Name() != "esxi_ssd_https_nvme_25g_mtu9000_x4" || rows[0].Rate() != 102.4 {
			t.Errorf("%s: %+v, %v", text, rows, err)
		}
		if len(rows) == 2 && (!rows[0].Modelled() || rows[1].Modelled()) {
			t.Error("Modelled must be true only for the NFS row")
		}
	}
}

func TestRowsAreReadStrictly(t *testing.T) {
	for text, want := range map[string]string{
		"[" + oneRow + "] " + oneRow:                       "something follows",
		oneRow + "\n" + `{"sauce": "ssd"}`:                 "line 2",
		strings.Replace(oneRow, "async", "perhaps", 1):     "async or sync",
		strings.Replace(oneRow, `"seconds": 10,`, "", 1):   "more than nothing",
		strings.Replace(oneRow, `"ssd"`, `"S S D"`, 1):     "want esxi_",
		strings.Replace(oneRow, `"ssd"`, `"pattern"`, 1):   "with https and nfc",
		strings.Replace(oneRow, `102.4`, `-1`, 1):          "a rate of -1",
		oneRow[:len(oneRow)-1]:                             "unexpected EOF",
		strings.Replace(oneRow, `"25g"`, `"25g", "x":`, 1): "invalid character",
	} {
		if rows, err := bench.ReadRows(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v, %v; want an error with %q", text, rows, err, want)
		}
	}
}

func FuzzReadRows(f *testing.F) {
	f.Add([]byte(oneRow))
	f.Add([]byte("[" + oneRow + "]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		rows, err := bench.ReadRows(strings.NewReader(string(text)))
		if err != nil || len(rows) == 0 {
			return
		}
		again, err := json.Marshal(rows)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := bench.ReadRows(strings.NewReader(string(again))); err != nil || len(back) != len(rows) {
			t.Errorf("%s: %d rows, %v", again, len(back), err)
		}
		for _, r := range rows {
			if s, err := bench.ParseName(r.Name()); err != nil || s != r.Setup {
				t.Errorf("%s: %+v, %v", r.Name(), s, err)
			}
		}
		bench.Effects(rows)
		bench.Curves(rows)
	})
}
