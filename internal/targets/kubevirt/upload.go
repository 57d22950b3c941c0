package kubevirt

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
	"github.com/decamp/decamp/internal/targets/kubevirt/kube"
	"github.com/decamp/decamp/internal/targets/platform"
)

// upload transfers one image to its DataVolume. Each step depends on the state of the DataVolume, so
// that an upload
// resumes after a crash.
type upload struct {
	*Cluster
	proxy    *proxy                                 // receives the image
	want     dataVolume                             // the DataVolume to create
	vm       *inventory.VM                          // the source VM
	open     func(context.Context) (*stream, error) // opens the image
	progress *platform.Progress                     // progress of the delivery

	failures int   // number of transfers that ended early
	last     error // last error that may be temporary
}

// maxFailures is the number of failed transfers after which the upload fails.
const maxFailures = 5

// stall is the maximum time without progress of a transfer, and between its last byte and the answer. A
// synchronous
// proxy answers after it has synced the whole image.
const stall = 15 * time.Minute

// run creates the DataVolume, sends the image, and returns when CDI has written it.
func (u *upload) run(ctx context.Context) error {
	if err := u.createVolume(ctx); err != nil {
		return err
	}
	var seen state
	var restarts *int // restart count of the pod that has received the image; nil before
	deadline := u.now().Add(u.patience)
	for {
		s, err := u.readVolume(ctx)
		if err != nil {
			return err
		}
		switch {
		case s.Status.Phase == "Succeeded":
			return nil
		case s.Status.Phase == "Failed":
			return fault.New(fault.Transient, "CDI failed%s", s.failureText()).WithHint("%s", u.describeCommand())
		case s.Status.Phase == "UploadReady" && (restarts == nil || *restarts != s.Status.Restarts):
			taken, err := u.sendImage(ctx)
			if err != nil {
				return err
			}
			if taken {
				restarts, deadline = &s.Status.Restarts, u.now().Add(u.patience)
			}
		}
		if s.Status.Phase != seen.Status.Phase || s.Status.Restarts != seen.Status.Restarts {
			seen, deadline = *s, u.now().Add(u.patience)
		}
		if u.now().After(deadline) {
			return errors.Join(fault.New(fault.Transient, "the DataVolume has been in phase %q for too long%s", s.Status.Phase, s.failureText()).WithHint("%s", u.describeCommand()), u.last)
		}
		if err := waitFor(ctx, u.poll); err != nil {
			return err
		}
	}
}

// describeCommand returns the kubectl command that displays the DataVolume's state.
func (u *upload) describeCommand() string {
	return "kubectl -n " + u.opts.namespaceName() + " describe datavolume,pvc " + u.want.Metadata.Name
}

// createVolume creates the DataVolume, or finds the one of an earlier upload. It replaces a DataVolume
// for another image,
// or one that has failed.
func (u *upload) createVolume(ctx context.Context) error {
	deadline := u.now().Add(u.patience)
	for {
		err := u.retryTransient(ctx, func() error { return u.client.Create(ctx, volumes, u.opts.namespaceName(), u.want, nil) })
		if !fault.Is(err, fault.Conflict) {
			return err
		}
		s, lookErr := u.readVolume(ctx)
		switch {
		case fault.Is(lookErr, fault.NotFound): // it was deleted meanwhile
		case lookErr != nil:
			return lookErr
		case s.Metadata.Annotations[rootNote] == u.want.Metadata.Annotations[rootNote] && s.Status.Phase != "Failed":
			return nil
		default:
			del := u.client.Delete(ctx, volumes, u.opts.namespaceName(), s.Metadata.Name, kube.Only{UID: s.Metadata.UID})
			if del != nil && !fault.Is(del, fault.NotFound) && !fault.Is(del, fault.Conflict) {
				return del
			}
		}
		if u.now().After(deadline) {
			return err
		}
		if err := waitFor(ctx, u.poll); err != nil {
			return err
		}
	}
}

// readVolume reads the DataVolume. One that belongs to another VM is fault.Conflict.
func (u *upload) readVolume(ctx context.Context) (*state, error) {
	var s state
	err := u.retryTransient(ctx, func() error {
		s = state{}
		return u.client.Read(ctx, volumes, u.opts.namespaceName(), u.want.Metadata.Name, &s)
	})
	if err == nil && !isMadeOf(s.Metadata.Annotations, u.vm) {
		err = conflictError("DataVolume", u.want.Metadata.Name, u.String(), u.vm)
	}
	return &s, err
}

// sendImage sends the image once. taken reports whether CDI has received all of it. If it returns false
// and nil, the
// caller can try again.
func (u *upload) sendImage(ctx context.Context) (taken bool, err error) {
	token, err := u.requestToken(ctx)
	if err != nil {
		return false, err
	}
	if err := u.proxy.choosePath(ctx, token); err != nil {
		return false, u.permanentError(ctx, err, 0)
	}
	body, err := u.open(ctx)
	if err != nil {
		return false, err
	}
	body.report = u.progress.Sent
	err = u.proxy.postImage(ctx, token, body, stall)
	if err == nil {
		return true, nil
	}
	if broken := body.readError(); broken != nil { // the image is unreadable
		return false, broken
	}
	return false, u.permanentError(ctx, err, body.sentBytes())
}

// requestToken requests an upload token from CDI. It expires after five minutes, and is checked only
// when the upload
// begins.
func (u *upload) requestToken(ctx context.Context) (string, error) {
	request := map[string]any{
		"apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest",
		"metadata": meta{Name: u.want.Metadata.Name, Namespace: u.opts.namespaceName()},
		"spec":     map[string]string{"pvcName": u.want.Metadata.Name},
	}
	var reply struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	err := u.retryTransient(ctx, func() error { return u.client.Create(ctx, tokens, u.opts.namespaceName(), request, &reply) })
	if err == nil && reply.Status.Token == "" {
		err = fault.New(fault.Corrupt, "CDI returned no upload token").WithHint("kubectl -n cdi logs deployment/cdi-apiserver")
	}
	return reply.Status.Token, err
}

// permanentError returns the error of a failed transfer, or nil if the transfer can be tried again.
// sent is the number
// of transferred bytes. It counts failures, except answers that the pod is not ready.
func (u *upload) permanentError(ctx context.Context, err error, sent int64) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	u.last = err
	var a *answer
	if errors.As(err, &a) {
		switch a.code {
		case http.StatusServiceUnavailable, http.StatusConflict: // the pod is not ready, or processes an image
			return nil
		case http.StatusBadRequest:
			return fault.New(fault.Full, "%w", err).WithHint("the volume is smaller than the disk: try another storageClass; %s", u.describeCommand())
		case http.StatusNotFound:
			return fault.New(fault.NotFound, "%w", err).WithHint("if %s is not CDI's upload proxy, add uploadProxy=https://HOST:PORT", u.proxy.url)
		case http.StatusRequestEntityTooLarge:
			return fault.New(fault.Unsupported, "%w", err).
				WithHint("a proxy before CDI limits uploads (nginx: annotation nginx.ingress.kubernetes.io/proxy-body-size: \"0\"), or set uploadProxy to a forwarded port")
		}
	}
	if u.failures++; u.failures >= maxFailures {
		return fault.New(fault.Transient, "the upload failed %d times, the last time after %d bytes: %w", u.failures, sent, err).WithHint("%s", u.describeCommand())
	}
	return nil
}

// tries is the maximum number of attempts of a request to the API server.
const tries = 5

// retryTransient calls ask until it succeeds, fails permanently, or has failed `tries` times.
func (c *Cluster) retryTransient(ctx context.Context, ask func() error) error {
	for n := 1; ; n++ {
		err := ask()
		if n == tries || !fault.Is(err, fault.Transient) && !fault.Is(err, fault.Unreachable) {
			return err
		}
		if pauseErr := waitFor(ctx, c.poll); pauseErr != nil {
			return pauseErr
		}
	}
}
