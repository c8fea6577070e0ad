package probe

import (
	"context"
	"time"

	"github.com/aks-flex-node/agent/internal/cluster"
	"github.com/aks-flex-node/agent/internal/observe"
)

// lookAtCertificate reads the kubelet's client certificate. How much longer it is valid is for others to judge.
func (s *Suite) lookAtCertificate(ctx context.Context, round time.Time) observe.Observation[observe.Certificate] {
	args, _ := s.lastFacts(ctx, round).kubeletArgs()
	c, err := cluster.ClientCertificate(s.kubeletKubeconfig(args))
	switch {
	case err != nil:
		return observe.CannotTell[observe.Certificate](cluster.ReasonOf(err), "%s", cluster.Explain(err, ""))
	case c.Plugin:
		return observe.See(c, observe.Healthy, "NoCertificate", "a credential plugin or a token speaks for the kubelet: there is no certificate that could expire")
	}
	return observe.See(c, observe.Healthy, "CertificateRead", "the certificate %s of %s ends on %s", c.Path, c.Subject, c.NotAfter.UTC().Format(time.RFC3339))
}
