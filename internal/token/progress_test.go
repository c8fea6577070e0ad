package token

import (
	"context"
	"errors"
	"fmt"
	"testing"
)

func TestProgressTellsWhatTheLastRequestWaitedFor(t *testing.T) {
	refused := errors.New("connection refused")
	for name, c := range map[string]struct {
		happened func(p *progress)
		want     string
	}{
		"nothing":         {func(*progress) {}, ""},
		"no connection":   {func(p *progress) { p.begin("a:443") }, "a:443: no connection"},
		"failed":          {func(p *progress) { p.begin("a:443"); p.fail(refused) }, "a:443: connection refused"},
		"failed, again":   {func(p *progress) { p.begin("a:443"); p.fail(refused); p.begin("a:443") }, "a:443: connection refused"},
		"failed, other":   {func(p *progress) { p.begin("a:443"); p.fail(refused); p.begin("b:443") }, "b:443: no connection"},
		"no failure":      {func(p *progress) { p.begin("a:443"); p.fail(nil) }, "a:443: no connection"},
		"given up":        {func(p *progress) { p.begin("a:443"); p.fail(fmt.Errorf("dial: %w", context.DeadlineExceeded)) }, "a:443: no connection"},
		"cancelled":       {func(p *progress) { p.begin("a:443"); p.fail(context.Canceled) }, "a:443: no connection"},
		"sent":            {func(p *progress) { p.begin("a:443"); p.mark(&p.sent, nil) }, "a:443 gives no answer"},
		"not sent":        {func(p *progress) { p.begin("a:443"); p.mark(&p.sent, refused) }, "a:443: no connection"},
		"answered":        {func(p *progress) { p.begin("a:443"); p.mark(&p.sent, nil); p.mark(&p.answered, nil) }, "a:443 answers, but slowly or only to try again later"},
		"answered early":  {func(p *progress) { p.begin("a:443"); p.mark(&p.answered, nil); p.mark(&p.sent, nil) }, "a:443 answers, but slowly or only to try again later"},
		"answered before": {func(p *progress) { p.begin("a:443"); p.mark(&p.answered, nil); p.begin("a:443"); p.mark(&p.sent, nil) }, "a:443 gives no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			var p progress
			c.happened(&p)
			if got := p.reached(); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
