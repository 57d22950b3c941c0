package platform

// Progress adds up the delivered bytes of all images of a VM. While an image is sent again, the
// reported
// value stays the same until the image exceeds it. Not safe for concurrent use.
type Progress struct {
	report                func(done, total int64) // called with the delivered bytes and the total; never nil
	done, reported, total int64                   // bytes of finished images, bytes last reported, bytes of all images
}

// NewProgress returns the progress of d, which reports to d.Progress.
func NewProgress(d Delivery) *Progress {
	p := &Progress{report: d.Progress}
	if p.report == nil {
		p.report = func(done, total int64) {}
	}
	for _, img := range d.Images {
		p.total += img.Size
	}
	return p
}

// Sent reports that n bytes of the current image are at the platform.
func (p *Progress) Sent(n int64) {
	if at := p.done + n; at > p.reported {
		p.reported = at
		p.report(at, p.total)
	}
}

// Finish reports that the current image is complete. size is its capacity in bytes.
func (p *Progress) Finish(size int64) {
	p.Sent(size)
	p.done += size
}
