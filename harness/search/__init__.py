"""Search: candidates from proposers through gates to one decision a round, again and again.

    candidates    a proposal packed in a scratch checkout; what is refused
    promotion     the one place that edits solutions/, and undoes it
    declaration   solutions/<room>/tuning.toml: which constants, which values
    constants     where a constant stands in a source, and its exact replacement
    proposers     the protocol; plans and proposals
    parameters    declared constants, mutated
    command       any program that reads a prompt and leaves a patch
    patches       git's patches, and what they may touch
    guard         the checkout as it was before a program ran
    prompt        what such a program is told
    folder        candidates that lie in a folder
    population    islands, elites, parents
    evaluator     what measures: the protocol, and how much effort each stage is worth
    live          the same on a GPU: warm workers in turns
    planning      what a round is given: state, direction, candidates
    rounds        what it measures, and its decision
    loop          rounds until the supervisor stops them; manifest, resume
    history       the archive as lines of text
    trajectory    the archive as a figure

Nothing here imports torch.
"""
