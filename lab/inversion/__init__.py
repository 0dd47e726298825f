"""From gradients the rows behind them: closed forms, unmixing, matching; scores and pictures of what was found."""
