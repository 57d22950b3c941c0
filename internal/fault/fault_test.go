package fault

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestKindSurvivesWrapping(t *testing.T) {
	inner := New(Full, "write image: %w", errors.New("no space left on device")).WithHint("free %d GiB", 3)
	err := fmt.Errorf("copy disk 2000: %w", inner)
	if KindOf(err) != Full || HintOf(err) != "free 3 GiB" {
		t.Fatalf("got kind %v, hint %q", KindOf(err), HintOf(err))
	}
	if got := err.Error(); got != "copy disk 2000: write image: no space left on device" {
		t.Fatalf("text %q", got)
	}
}

func TestHintFoundInJoinedErrors(t *testing.T) {
	err := errors.Join(errors.New("first"), New(Denied, "login").WithHint("check the password"))
	if HintOf(err) != "check the password" {
		t.Fatalf("hint %q", HintOf(err))
	}
	if KindOf(err) != Denied {
		t.Fatalf("kind %v", KindOf(err))
	}
}

func TestContextErrorsHaveKinds(t *testing.T) {
	if KindOf(fmt.Errorf("x: %w", context.Canceled)) != Canceled {
		t.Error("canceled context is not Canceled")
	}
	if KindOf(context.DeadlineExceeded) != Transient {
		t.Error("deadline is not Transient")
	}
	if KindOf(errors.New("?")) != Internal {
		t.Error("unknown error is not Internal")
	}
}

func TestRefusedLogin(t *testing.T) {
	refused := fmt.Errorf("copy: %w", New(Denied, "wrong password").OfLogin())
	if !errors.Is(refused, ErrLogin) || !Is(refused, Denied) || refused.Error() != "copy: wrong password" {
		t.Errorf("%v is not a refused login", refused)
	}
	if errors.Is(New(Denied, "no privilege"), ErrLogin) {
		t.Error("an error of kind Denied without OfLogin is a refused login")
	}
}

func TestEveryKindHasANameAndItsOwnExitCode(t *testing.T) {
	seen := map[int]Kind{}
	for k := Internal; k <= Canceled; k++ {
		if k.String() == "" || k.String()[0] == 'k' {
			t.Errorf("kind %d has no name", k)
		}
		code := ExitCode(New(k, "x"))
		if other, dup := seen[code]; dup || code == 0 {
			t.Errorf("kind %v has exit code %d, which %v has too", k, code, other)
		}
		seen[code] = k
	}
	if ExitCode(nil) != 0 {
		t.Error("nil error does not exit 0")
	}
}
