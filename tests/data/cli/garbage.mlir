module @garbage {
  func.func public @main(
