package migrate

import (
	"testing"
	"time"

	"github.com/decamp/decamp/internal/blockcopy"
	"github.com/decamp/decamp/internal/bottleneck"
)

func TestBusyIsOfWhatWaited(t *testing.T) {
	const s = time.Second
	was := blockcopy.Times{ReadTime: 100 * s, PaceWait: 5 * s, HashTime: 10 * s, WindowWait: s, WriteTime: 20 * s, Writers: 2}
	for name, tc := range map[string]struct {
		more blockcopy.Times // within 5 s
		want bottleneck.Busy
	}{
		"eight readers wait, two writers write a quarter of the time": {
			blockcopy.Times{ReadTime: 36 * s, HashTime: 4 * s, WriteTime: 2500 * time.Millisecond, Writers: 2},
			bottleneck.Busy{Source: 0.9, Processor: 0.1, Target: 0.25}},
		"readers wait for windows, and writers write all the time": {
			blockcopy.Times{ReadTime: 4 * s, WindowWait: 36 * s, WriteTime: 11 * s, Writers: 2},
			bottleneck.Busy{Source: 0.1, Target: 1}},
		"a rate was said": {
			blockcopy.Times{ReadTime: 10 * s, PaceWait: 30 * s, Writers: 2},
			bottleneck.Busy{Source: 0.25, Budget: 0.75}},
		"the host waits for writers that hash a third of the time": {
			blockcopy.Times{ReadTime: s, WindowWait: 4 * s, WriteTime: 6 * s, WriterHash: 3 * s, Writers: 2},
			bottleneck.Busy{Source: 0.2, Target: 0.6, Processor: 0.3}},
		"the host does not wait for writers, which hash more than they write": {
			blockcopy.Times{ReadTime: 5 * s, WriteTime: s, WriterHash: 4 * s, Writers: 2},
			bottleneck.Busy{Source: 1, Target: 0.1, Processor: 0.4}},
		"nobody reads": {blockcopy.Times{Writers: 2}, bottleneck.Busy{}},
		"no copy":      {blockcopy.Times{ReadTime: s}, bottleneck.Busy{}},
	} {
		is := blockcopy.Times{
			ReadTime: was.ReadTime + tc.more.ReadTime, PaceWait: was.PaceWait + tc.more.PaceWait, HashTime: was.HashTime + tc.more.HashTime,
			WindowWait: was.WindowWait + tc.more.WindowWait, WriteTime: was.WriteTime + tc.more.WriteTime, Writers: tc.more.Writers, WriterHash: tc.more.WriterHash,
		}
		if got := busyOf(was, is, 5*s); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}
