package here

import (
	"context"
	"strings"

	"github.com/decamp/decamp/internal/convert/virtv2v"
	"github.com/decamp/decamp/internal/doctor"
	"github.com/decamp/decamp/internal/fault"
)

// v2v looks for virt-v2v, which nothing but the conversion of some guests depends on.
func (e *examiner) v2v(ctx context.Context) []doctor.Finding {
	f := doctor.Finding{Want: "virt-v2v-in-place, to convert Windows, and Linux that linux-append does not take, for virtio"}
	tool, err := e.V2V(ctx)
	switch lacks := tool.Lacks(); {
	case fault.Is(err, fault.NotFound):
		f.Status, f.Seen, f.Remedy = doctor.Advice, err.Error()+": such guests keep the hardware they had", virtv2v.InstallHint
	case err != nil:
		f.Status, f.Seen, f.Remedy = doctor.Unknown, err.Error(), "virt-v2v-in-place --version"
	case len(lacks) > 0:
		f.Status, f.Seen = doctor.Advice, tool.String()+" has "+strings.Join(lacks, "; ")
		f.Remedy = "take virt-v2v 2.12 or newer where Windows is to be converted, or much is free in guests; else this one does"
	default:
		f.Seen = tool.String()
	}
	return []doctor.Finding{f}
}
