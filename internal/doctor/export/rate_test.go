package export

import (
	"errors"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

func TestJudgeRates(t *testing.T) {
	exports, _ := ParseExports("/a *(rw,no_root_squash)", "/etc/exports")
	e := &examiner{}
	s := &Server{Name: kernelName, Written: exports, relevant: exports, reload: "exportfs -ra"}
	for _, v := range []struct {
		rates  Rates
		err    error
		status doctor.Status
		found  string
		remedy string
	}{
		{Rates{Stable: 12.3e6, Unstable: 295e6}, nil, doctor.Warning, "12 MB/s with stable writes of 64 KiB, as ESXi writes, and 295 MB/s with unstable writes: factor 24.0", "(rw,async,"},
		{Rates{Stable: 250e6, Unstable: 295e6}, nil, doctor.OK, "factor 1.2", ""},
		{Rates{}, fault.New(fault.Denied, "access denied"), doctor.Unknown, "access denied", "sed -i '1c"},
		{Rates{}, fault.New(fault.Unreachable, "x").WithHint("rpcinfo -p"), doctor.Unknown, "x", "rpcinfo -p"},
	} {
		f := e.judgeRates(s, "/a", v.rates, v.err)
		if f.Status != v.status || !strings.Contains(f.Found, v.found) || !strings.Contains(f.Remedy, v.remedy) {
			t.Errorf("rates %v, error %v: got finding %+v", v.rates, v.err, f)
		}
	}
	s.Name = ganeshaName
	if f := e.judgeRates(s, "/a", Rates{Stable: 1, Unstable: 4}, nil); !strings.Contains(f.Remedy, "landing") {
		t.Errorf("got finding %+v", f)
	}
	if f := e.judgeRates(s, "/a", Rates{}, errors.New("x")); f.Remedy == "" {
		t.Errorf("got finding %+v", f)
	}
}
