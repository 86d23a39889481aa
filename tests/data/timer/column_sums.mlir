module @column_sums {
  func.func public @main(%x: tensor<1024x1024xf32>) -> tensor<1024xf32> {
    %c = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%x init: %c) applies stablehlo.add across dimensions = [0] : (tensor<1024x1024xf32>, tensor<f32>) -> tensor<1024xf32>
    return %0 : tensor<1024xf32>
  }
}
