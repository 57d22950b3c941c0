package main

import (
	"errors"
	"strings"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/unit"
)

// fitsMemory refuses to hold more than this machine can. Where that is unknown, it is up
// to the user.
func fitsMemory(n int64) error {
	free, known := availableMemory()
	if !known || n <= free {
		return nil
	}
	return fault.New(fault.Invalid, "there are %s of memory to be had, not %s", size(free), size(n)).
		WithHint("give less to --landing tmpfs:SIZE or --landing-memory SIZE: %s leave room for the rest", size(free/4*3))
}

// tmpfsFlag is tmpfs:SIZE as a pflag value, in bytes.
type tmpfsFlag int64

func (f *tmpfsFlag) String() string {
	if *f == 0 {
		return ""
	}
	return "tmpfs:" + (*sizeFlag)(f).String()
}

func (f *tmpfsFlag) Type() string { return "tmpfs:SIZE" }

// Set reads tmpfs:SIZE.
func (f *tmpfsFlag) Set(s string) error {
	digits, ok := strings.CutPrefix(s, "tmpfs:")
	n, err := unit.ParseSize(digits)
	switch {
	case !ok:
		return errors.New("want tmpfs:SIZE, such as tmpfs:16G")
	case err == nil && n == 0:
		return errors.New("want a size above 0, such as tmpfs:16G")
	}
	*f = tmpfsFlag(n)
	return err
}
