package esx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/decamp/decamp/internal/fault"
)

func TestClassify(t *testing.T) {
	vim := func(f types.BaseMethodFault) error { return soap.WrapVimFault(f) }
	web := func(err error) error { return &url.Error{Op: "Post", URL: "https://esx1/sdk", Err: err} }
	for _, c := range []struct {
		err    error
		want   fault.Kind
		remedy bool
	}{
		{vim(&types.RestrictedVersion{}), fault.Unsupported, true},
		{vim(&types.NoPermission{PrivilegeId: "Datastore.Browse"}), fault.Denied, true},
		{vim(&types.InvalidLogin{}), fault.Denied, true},
		{vim(&types.PasswordExpired{}), fault.Denied, true},
		{vim(&types.NotAuthenticated{}), fault.Denied, true},
		{vim(&types.ManagedObjectNotFound{}), fault.NotFound, true},
		{vim(&types.FileNotFound{}), fault.NotFound, false},
		{vim(&types.InvalidPowerState{}), fault.Conflict, false},
		{vim(&types.FileLocked{}), fault.Conflict, false},
		{vim(&types.TaskInProgress{}), fault.Transient, true},
		{vim(&types.NotSupported{}), fault.Unsupported, false},
		{vim(&types.MethodNotFound{}), fault.Unsupported, false},
		{vim(&types.HostCommunication{}), fault.Transient, false},
		{vim(&types.NoDiskSpace{}), fault.Full, false},
		{vim(&types.SystemError{}), fault.Internal, false},
		{web(&statusError{401}), fault.Denied, true},
		{web(&statusError{404}), fault.NotFound, false},
		{web(&statusError{500}), fault.Conflict, true},
		{web(&statusError{503}), fault.Transient, false},
		{web(&net.DNSError{Err: "no such host", Name: "esx1"}), fault.Unreachable, true},
		{web(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), fault.Unreachable, true},
		{web(&net.OpError{Op: "read", Err: syscall.ECONNRESET}), fault.Transient, false},
		{web(io.EOF), fault.Transient, false},
		{web(context.Canceled), fault.Canceled, false},
		{web(context.DeadlineExceeded), fault.Transient, false},
		{errors.New("?"), fault.Internal, false},
		{web(fault.New(fault.Denied, "pin").WithHint("look")), fault.Denied, true},
	} {
		got := classify(fmt.Errorf("doing: %w", c.err))
		if fault.KindOf(got) != c.want || (fault.HintOf(got) != "") != c.remedy {
			t.Errorf("%v: kind %v, hint %q; want %v, remedy %v", c.err, fault.KindOf(got), fault.HintOf(got), c.want, c.remedy)
		}
		if !errors.Is(got, c.err) && errors.Unwrap(c.err) != nil {
			t.Errorf("%v does not wrap %v", got, c.err)
		}
	}
	if classify(nil) != nil {
		t.Error("classify(nil) is not nil")
	}
}
